"""Voxtral TTS: twenty preset voices."""
