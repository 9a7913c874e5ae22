"""Rounds on their way to the broker: cut, compressed, stored once, and published by one agent. Touches no file."""
