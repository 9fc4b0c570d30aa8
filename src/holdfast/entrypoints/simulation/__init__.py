"""Runs Holdfast inside the simulator, for `holdfast simulate` and for the console."""
