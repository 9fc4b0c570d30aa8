"""Words that every room uses. Standard library only."""
