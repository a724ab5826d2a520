"""Being told of events: where a project wants them, and what was delivered."""
