"""Layers that two or more model families use."""
