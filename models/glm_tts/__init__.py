"""GLM-TTS: zero-shot clones."""
