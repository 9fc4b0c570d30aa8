"""The sides of a comparison: ours, and the bare library doing the same work."""
