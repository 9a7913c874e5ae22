"""Decides which files are followed, what each of them is, and whose turn it is to be read. Publishes nothing."""
