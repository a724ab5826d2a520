"""The HTTP layer: stateless, any number of replicas, no torch."""
