"""What the core needs from its environment, as Protocols with their promises."""
