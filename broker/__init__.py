"""What all three programs share: the wire contract, and the bundled nats-server and its administration."""
