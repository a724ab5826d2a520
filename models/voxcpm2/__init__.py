"""VoxCPM2: 48 kHz, continuous latents."""
