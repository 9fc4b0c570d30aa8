"""Tables, colours, progress bars and live screens."""
