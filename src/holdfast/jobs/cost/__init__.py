"""The cost of jobs, and of the tracker itself."""
