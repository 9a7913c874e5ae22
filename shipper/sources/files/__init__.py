"""The files of a host: finding, recognising, watching and reading them. Knows nothing of the broker."""
