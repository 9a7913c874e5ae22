"""nats-server as a child process, and what logbroker does beside it. Front door: `context`."""
