"""The Kubernetes port: one contract for all clusters, and what only a real API server can show."""
