"""The points of a receiver at which a test can kill it; `broker.app.faults` does it."""

__all__ = ["IN_BATCH", "IN_DRIVER", "IN_TURN", "IN_UNDO", "NOW_AND_THEN", "POINTS"]

IN_BATCH = (
    "fetched",
    "registered",
    "journalled",
    "announced",
    "written",
    "appended",
    "closed",
    "rotated",
    "files_synced",
    "synced",
    "spanned",
    "ended",
    "committed",
    "acknowledged",
    "reported",
)
"""Those that every batch in which files are rotated comes through, on its way to the end of the stay."""
NOW_AND_THEN = (
    "journal_renewed",
    "journal_replaced",
    "gaps_announced",
    "gaps_saved",
    "gaps_told",
    "gaps_summed",
    "spans_renewed",
    "lengths_written",
)
"""Those of a task that has a gap to tell, or a file of its own that has grown."""
IN_UNDO = ("fenced", "undoing", "undone", "settled")
IN_TURN = ("turn_announced", "turn_synced", "turned")
IN_DRIVER = ("claimed", "tied", "heard", "compressed", "packed", "pruned")

POINTS = (*IN_BATCH, *NOW_AND_THEN, *IN_UNDO, *IN_TURN, *IN_DRIVER)
