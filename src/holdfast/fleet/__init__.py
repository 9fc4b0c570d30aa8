"""Buying and returning machines: what the cluster and the runners have in common."""
