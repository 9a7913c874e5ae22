"""What never came, by name: a row of the store with the batch that showed it, and a line of the partition's gap report.

The report is a live file of the partition, appended, stored and undone with the batch as those of hosts are; a person may
move or empty it at any time.
"""

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from receiver.storage.store import Store

__all__ = ["GAP_REPORTS", "Gap", "Missing", "gap_report", "lines_of", "missing", "put"]

GAP_REPORTS = ".gaps.p*.jsonl"
"""What the names of all reports in an output folder match."""

_COLUMNS = "kind, host, file, file_id, start, until, sequence, after, since, read_at"


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes `[start, until)` of a source file that never came, or a loss, of which no bytes are known.

    `sequence` is that of the message that showed it, which was read at `read_at`, the one before at `since` (RFC 3339). Of a
    loss `after` is the last message before it.
    """

    kind: str
    host: str
    file: str
    file_id: str
    start: int
    until: int
    sequence: int
    after: int
    since: str | None
    read_at: str | None


@dataclass(frozen=True, slots=True)
class Missing:
    """What never came of a host's files: how many gaps, and of how many bytes in all."""

    gaps: int = 0
    size: int = 0


def gap_report(partition: int) -> str:
    """Return the name of a partition's report in the output folder."""
    return GAP_REPORTS.replace("*", str(partition))


def put(store: Store, gaps: Iterable[Gap], batch: int) -> None:
    """Write what a batch has shown, within its transaction."""
    store.change_all(
        f"INSERT INTO gaps ({_COLUMNS}, batch) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        ((*astuple(gap), batch) for gap in gaps),
    )


def missing(store: Store) -> dict[str, Missing]:
    """Return by host what never came; that of a batch that is stored and not committed counts already."""
    query = "SELECT host, count(*), sum(until - start) FROM gaps GROUP BY host"
    return {
        str(host): Missing(int(str(gaps)), int(str(size))) for host, gaps, size in store.rows(query)
    }


def lines_of(gaps: Iterable[Gap], partition: int) -> bytes:
    """Return the lines of the report."""
    return b"".join(_line(gap, partition) for gap in gaps)


def _line(gap: Gap, partition: int) -> bytes:
    about: dict[str, object] = {
        "kind": gap.kind,
        "host": gap.host,
        "file": gap.file,
        "file_id": gap.file_id,
        "start": gap.start,
        "end": gap.until,
        "sequence": gap.sequence,
        "since": gap.since,
        "until": gap.read_at,
        "partition": partition,
        "bytes": gap.until - gap.start,
    }
    if gap.kind == "loss":
        about["after"] = gap.after
    return json.dumps(about, separators=(",", ":")).encode() + b"\n"
