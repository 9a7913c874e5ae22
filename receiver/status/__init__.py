"""The receiver's status document and metrics. Changes nothing."""
