"""Kubernetes over HTTP: a thin client on urllib3 and msgspec, and a view of the cluster that a watch keeps fresh."""
