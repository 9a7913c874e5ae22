"""The commands of logbroker, one room for each kind: options in, exit code out. Decide nothing."""
