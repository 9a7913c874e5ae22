"""The points of a shipper at which a test can kill it; `broker.app.faults` does it."""

__all__ = ["IN_MOVE", "POINTS"]

IN_MOVE = ("left",)
"""Those of a start behind another number of partitions."""

POINTS = (
    *("claimed", *IN_MOVE, "rebuilt", "gathered", "sending", "sent", "stored", "advanced"),
    *("snapshot_sending", "snapshot_written"),
)
