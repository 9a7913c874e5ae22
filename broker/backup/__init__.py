"""Backups of a running broker: taken and kept (`archives`), and brought back (`restore`)."""
