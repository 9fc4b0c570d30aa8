"""What GitHub told us: jobs, runs and deployments, from webhooks that come late, twice or out of order."""
