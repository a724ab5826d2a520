"""Fish Speech S2 Pro."""
