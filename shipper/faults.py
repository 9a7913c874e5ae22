"""The points of a shipper at which a test can kill it; `broker.faults` does it."""

__all__ = ["POINTS"]

POINTS = (
    "claimed",
    "rebuilt",
    "gathered",
    "sending",
    "sent_in_part",
    "sent",
    "stored",
    "advanced",
    "positions_written",
    "positions_saved",
)
