"""Builds everything from the settings."""
