"""What the core asks of the world, as Protocols with their promises."""
