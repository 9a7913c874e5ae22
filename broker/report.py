"""On which subject every logbroker answers with its report, in the account of the stream."""

__all__ = ["SUBJECT"]

SUBJECT = "logship.broker"
