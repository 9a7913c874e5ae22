"""The systems that are compared: ours, other log shippers, and the machine's own limits."""
