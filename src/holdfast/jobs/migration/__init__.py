"""Migration from an older system that keeps each webhook as an object in S3: in phases, forward and back."""
