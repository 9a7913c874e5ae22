"""Received files against the stream. Reads only."""
