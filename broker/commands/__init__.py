"""The commands of `logbroker`, a module for each kind: options in, exit code out."""
