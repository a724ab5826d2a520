"""Qwen3-TTS at 12 Hz: preset speakers, designed voices and clones."""
