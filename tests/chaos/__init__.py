"""Proof under fire: a suite under seeded faults, judged by line; `python -m tests.chaos --help`."""
