"""OmniVoice: masked generation in over 600 languages."""
