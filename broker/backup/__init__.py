"""Backups of the streams of a running broker, and how they come back. Front door: `archives`, `restore`."""
