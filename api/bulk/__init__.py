"""Many jobs at once: checked one by one, accepted together, and submitted a window at a time (speech_api §5.4.1)."""
