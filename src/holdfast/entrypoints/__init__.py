"""Where the program begins: wiring, logs, the server."""
