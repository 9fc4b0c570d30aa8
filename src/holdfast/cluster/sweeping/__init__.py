"""What belongs to no action any more, and what an older autoscaler or a lost state left."""
