"""Finds what webhooks missed, and reruns jobs that failed because of a spot interruption."""
