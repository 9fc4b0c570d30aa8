"""Keeps the right number of EC2 machines under two kinds of load, and loses nothing when it is killed."""
