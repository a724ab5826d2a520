"""The stand-in: any model's stages as a tone, for farms under test. It has no card, so it is no model of its own."""
