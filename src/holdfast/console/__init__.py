"""The web pages, and the same as JSON."""
