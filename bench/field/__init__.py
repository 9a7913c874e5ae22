"""Measured against the field: ours, other log shippers and what the machine itself can do, each behind one protocol."""
