"""Processes and their wiring: the server, the daemon's loops, the Lambda handlers, and the doctor."""
