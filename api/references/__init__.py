"""Recordings that a model is to sound like: from wherever they are to what a model derives from them."""
