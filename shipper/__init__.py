"""The tail agent: publishes the lines of a host's files, acknowledged."""
