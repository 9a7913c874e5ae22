"""The points of a receiver at which a test can kill it; `nats_logship.app.faults` does it."""

IN_BATCH = (
    "fetched",
    "announced",
    "written",
    "appended",
    "closed",
    "rotated",
    "files_synced",
    "synced",
    "stored",
    "committed",
    "acknowledged",
    "reported",
)
"""Those that every batch in which files are rotated comes through, on its way to the end of the session."""
IN_UNDO = ("fenced", "undoing", "undone", "settled")
IN_ROTATION = ("files_closed",)
IN_DRIVER = ("claimed", "report_received", "compressed", "packed", "pruned")

POINTS = (*IN_BATCH, *IN_UNDO, *IN_ROTATION, *IN_DRIVER)
