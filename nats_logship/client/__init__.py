"""A connection to the broker, and the parts of NATS that all programs use through it."""
