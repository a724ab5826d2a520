"""`speechmill voices`."""
