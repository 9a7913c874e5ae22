"""Rounds on their way to the broker: cut, packed, stored once, and owned by one agent. Touches no file."""
