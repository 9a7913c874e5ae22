"""Other log shippers under the same schedule of faults, for comparison. `make chaos-peers`, or `python -m tests.chaos.peers --help`."""
