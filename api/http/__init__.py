"""What any route needs of HTTP."""
