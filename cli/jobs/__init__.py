"""`speechmill jobs`: jobs and groups of jobs of a farm."""
