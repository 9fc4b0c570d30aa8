"""Kubernetes over HTTP: a thin client on urllib3 and msgspec, and a cache of the cluster kept fresh by watches."""
