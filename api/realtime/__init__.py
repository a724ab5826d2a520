"""Text to speech over a WebSocket, while the text arrives."""
