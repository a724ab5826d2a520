"""The embedded voice: hibari-tts 0.2, whose weights ship inside its wheel."""
