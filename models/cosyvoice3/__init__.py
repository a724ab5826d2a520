"""Fun-CosyVoice3: zero-shot clones."""
