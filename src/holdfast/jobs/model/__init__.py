"""Jobs, runs and deployments as folds over their events."""
