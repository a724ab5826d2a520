"""Gepard-1.0: one voice for dialogue."""
