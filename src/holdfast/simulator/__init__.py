"""A simulated EC2, K3s, Prometheus and GitHub, in virtual time and driven by a seed.

It is part of the product: `holdfast run` without settings uses it, and so do the proofs. Nothing here reads a real
clock or a real source of randomness, so the same seed gives the same world, event by event.
"""
