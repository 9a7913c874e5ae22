"""The points of a shipper at which a test can kill it; `nats_logship.app.faults` does it."""

IN_MOVE = ("left",)
"""Points of a start with another number of partitions."""

POINTS = (
    *("claimed", *IN_MOVE, "rebuilt", "gathered", "sending", "stored", "advanced"),
    *("snapshot_sending", "snapshot_written"),
)
