"""What crosses process borders: keys, messages, the stage log protocol, objects and encoders."""
