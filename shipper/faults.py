"""The points of a shipper at which a test can kill it; `broker.app.faults` does it."""

__all__ = ["POINTS"]

POINTS = (
    "claimed",
    "left",
    "rebuilt",
    "gathered",
    "sending",
    "sent",
    "stored",
    "advanced",
    "snapshot_sending",
    "snapshot_written",
)
