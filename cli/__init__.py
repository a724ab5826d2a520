"""The front door for shells."""
