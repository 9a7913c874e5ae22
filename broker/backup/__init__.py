"""Takes and keeps backups of a running broker (`archives`), and restores them (`restore`)."""
