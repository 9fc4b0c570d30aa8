"""GitHub jobs, runs and deployments, tracked from webhooks that arrive late, twice or out of order."""
