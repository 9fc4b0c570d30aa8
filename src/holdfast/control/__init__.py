"""What any durable control loop needs: a fenced lease, a ledger, steps and plans with reasons, a decision log."""
