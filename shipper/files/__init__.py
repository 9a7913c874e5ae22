"""Files as they lie on the disk: finding, recognising and reading them. Knows nothing of what is followed, nor of the broker."""
