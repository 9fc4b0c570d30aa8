"""The K3s cluster's control loop: observe, decide, act."""
