"""The codec of Qwen3-TTS (12 Hz): 24 kHz audio ⇄ frames of sixteen codes, the first of which is the semantic one."""
