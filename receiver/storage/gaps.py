"""What never came, by name: a row of the store with the batch that showed it, told in `<output>/.gaps.jsonl` once committed.

The file in the output folder is everybody's, and a person's to read, rotate or empty at any time.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from broker.app.faults import fault
from receiver.storage.opening import descriptor_of, named, sync_folder
from receiver.storage.store import Store

__all__ = ["GAPS", "Gap", "Missing", "missing", "put", "tell"]

GAPS = ".gaps.jsonl"
"""The name of the file in the output folder."""

_TRIES, _BETWEEN = 100, 0.01  # a second in all
_LOOK_BACK = 16 * 1024 * 1024  # bytes of it in which a gap is looked for that may have been told
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


def put(store: Store, gaps: Iterable[Gap], batch: int) -> None:
    """Write what a batch has shown, within its transaction."""
    store.change_all(
        f"INSERT INTO gaps ({_COLUMNS}, batch, told) VALUES (?,?,?,?,?,?,?,?,?,?,?,0)",
        ((*astuple(gap), batch) for gap in gaps),
    )


def tell(store: Store, output: Path, partition: int) -> None:
    """Append what is committed and was not told to the file in the output folder, each gap once.

    Only between batches, when the stored one is committed. Killed anywhere in here, the next call finds what was told
    already. Raises OSError, `Damaged`.
    """
    found = store.rows(f"SELECT id, {_COLUMNS} FROM gaps WHERE NOT told ORDER BY id")
    if not found:
        return
    lines = [_line(Gap(*row[1:]), partition) for row in found]  # type: ignore[arg-type] # by the schema
    with named(output / GAPS):
        try:
            _publish(output / GAPS, lines)
        except TimeoutError:
            return  # that's fine: they are told after one of the next batches
    fault("gaps_told")
    with store.transaction():
        store.change("UPDATE gaps SET told = 1 WHERE id <= ?", found[-1][0])


def missing(store: Store) -> dict[str, Missing]:
    """Return by host what never came; that of a batch that is stored and not committed counts already."""
    query = "SELECT host, count(*), sum(until - start) FROM gaps GROUP BY host"
    return {
        str(host): Missing(int(str(gaps)), int(str(size))) for host, gaps, size in store.rows(query)
    }


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


def _publish(path: Path, untold: Sequence[bytes]) -> None:
    with _held(path) as descriptor:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _LOOK_BACK, max(size - _LOOK_BACK, 0))
        whole = tail.rfind(b"\n") + 1
        if whole != len(tail):  # written by a hand, or by one of us that died or had no room
            size -= len(tail) - whole
            os.ftruncate(descriptor, size)
        told = set(tail.splitlines(keepends=True))
        _append(descriptor, b"".join(line for line in untold if line not in told), size)
    sync_folder(path.parent)


@contextmanager
def _held(path: Path) -> Iterator[int]:
    descriptor = descriptor_of(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock the file, which partitions share for milliseconds; raises TimeoutError where a reader holds it for longer."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_BETWEEN)
    raise TimeoutError(f"{GAPS} is locked by somebody else")


def _append(descriptor: int, data: bytes, size: int) -> None:
    try:
        if data:
            _write_whole(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # what may never have reached the disk is not to be found told
            os.ftruncate(descriptor, size)
        raise


def _write_whole(descriptor: int, data: bytes) -> None:
    if os.write(descriptor, data) != len(data):
        raise OSError(28, "No space left on device")
