"""The runner fleet: which machine a job's labels ask for. Nothing is launched yet."""
