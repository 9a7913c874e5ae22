"""`logbroker`: the bundled nats-server and its administration."""
