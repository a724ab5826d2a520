"""Files of texts, one module for each kind."""
