"""A world with a clock and a seed: EC2, K3s and Prometheus as far as Holdfast can tell, in virtual time.

It is part of the product: `holdfast run` with no settings runs on it, and the proofs do. Nothing here reads a real
clock or a real source of chance, so the same seed gives the same world, event by event.
"""
