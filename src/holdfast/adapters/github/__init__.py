"""GitHub's REST API."""
