"""What must exist on a broker: compared with what is there, and brought about."""
