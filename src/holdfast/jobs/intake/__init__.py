"""Receives webhooks; the effect of each is durable before it is acknowledged."""
