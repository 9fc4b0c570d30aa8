"""Launching and terminating machines: what the cluster and the runners have in common."""
