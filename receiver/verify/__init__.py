"""Compares received files with the stream. Changes nothing."""
