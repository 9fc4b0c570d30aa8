"""The simulated world: EC2, K3s, Prometheus and GitHub in virtual time."""
