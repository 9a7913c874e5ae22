"""Runs nats-server as a child process, and the tasks beside it. Front door: `context`."""
