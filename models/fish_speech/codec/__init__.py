"""The codec of Fish Speech S2 Pro: 44.1 kHz audio ⇄ frames of one semantic and several residual codes."""
