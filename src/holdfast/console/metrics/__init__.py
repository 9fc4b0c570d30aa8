"""Metrics served at /metrics."""
