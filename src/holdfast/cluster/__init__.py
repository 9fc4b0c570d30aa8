"""One K3s cluster: what is seen, what is decided, and the actions that carry it out."""
