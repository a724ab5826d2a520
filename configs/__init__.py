"""Settings and deployment profiles."""
