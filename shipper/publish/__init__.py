"""Makes rounds and publishes them, each stored once, by one agent of a host. Touches no file."""
