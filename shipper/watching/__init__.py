"""Hears that files change, from the kernel or by looking. Reads no line."""
