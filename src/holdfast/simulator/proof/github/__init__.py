"""GitHub's half of a run: its scripted jobs, its webhooks under faults, and the job tracker's processes."""
