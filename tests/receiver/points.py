"""The points of a receiver at which a test can kill it, by `nats_logship.app.faults`."""

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
"""Those of a batch in which files are rotated, and of the end of its session, in order."""
IN_UNDO = ("fenced", "undone", "recovered")
IN_REPAIR = ("undoing", "surplus_cut")
"""Those of a start that finishes renames, and of one whose files have bytes of others."""
IN_ROTATION = ("files_closed",)
IN_DRIVER = ("claimed", "report_received", "compressing", "compressed", "deleted")

POINTS = (*IN_BATCH, *IN_UNDO, *IN_REPAIR, *IN_ROTATION, *IN_DRIVER)

IN_ROUND = ("table_written", "table_synced", "table_gaps", "table_committed", "table_stored")
IN_MAINTENANCE = ("table_merged", "table_compacted", "table_vacuumed")
IN_TABLE = ("table_claimed", *IN_ROUND, *IN_MAINTENANCE)
"""Those of `logreceiver table`, in order."""
