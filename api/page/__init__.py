"""The web page and the description of the API, as files for a browser."""
