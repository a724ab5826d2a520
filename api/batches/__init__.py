"""OpenAI's Batch API for speech: groups of jobs that come from a file and go into one (speech_api §5.3)."""
