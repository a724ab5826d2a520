"""Text to speech over HTTP."""
