"""How a speaker sounds, as one vector of the talker's width: the encoder of the Base checkpoints."""
