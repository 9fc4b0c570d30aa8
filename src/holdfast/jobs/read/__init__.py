"""Queries about jobs, statistics and explanations."""
