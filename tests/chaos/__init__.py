"""Proof under fire: a whole suite under seeded faults, judged line by line.

`make chaos`, or `python -m tests.chaos --help`.
"""
