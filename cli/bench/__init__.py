"""Measurements: load generators, contenders and tables."""
