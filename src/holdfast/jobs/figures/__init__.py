"""Figures of many jobs, counted hour by hour and day by day, so that a reader never has to read the jobs."""
