"""How long live files were when they were last left, so that what other hands did to them since can be told by name.

A hint, never the truth: what it says may be as old as the last death of a process, and nothing is cut or undone by it.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from broker.checksum import closed, is_intact
from broker.faults import fault
from receiver.writing.layout import Layout

__all__ = ["Damaged", "Known", "Lengths", "difference", "remains"]

_VERSION = 1
_DEFAULT = Layout()


class Damaged(Exception):
    """A file is not what it was when it was committed; nobody but a person can know what to do."""


@dataclass(frozen=True, slots=True)
class Known:
    """A live file as it was left: its inode (0: not known here), its bytes, the number that its segment would get."""

    inode: int
    length: int
    number: int


def difference(live: str, known: Known, now: Known | None) -> str | None:
    """Return what somebody else did to a live file since it was left, in a sentence; None for nothing that shows.

    `now` is None for a file that is gone. Whether it has been rotated since is told by its number.
    """
    if not known.length or (now is not None and now.number != known.number):
        return None
    had = f"of which {known.length} bytes were written"
    if now is None:
        return f"{live}, {had}, is gone: it was moved or removed by somebody else; a new one begins"
    if known.inode and now.inode != known.inode:
        return f"{live}, {had}, was replaced by another file; what is there is closed and a new one begins"
    if now.length < known.length:
        return (
            f"{live}, {had}, was cut to {now.length} bytes by somebody else: lines are missing in it; "
            "what is there is closed and a new one begins"
        )
    return None


def remains(live: str, inode: int, length: int, now: Known | None) -> str | None:
    """Judge a file that is to be cut back to the `length` bytes that were committed of it, by its inode then (0: not known).

    None: they are all there. Else what to tell when nothing is left to be cut. Raises `Damaged` for what is there instead.
    """
    is_other = now is not None and inode not in (0, now.inode)
    if now is None or (is_other and not now.length):
        return (
            f"{live}, of which {length} bytes were committed, is gone: it was moved or removed by somebody else in the "
            f"middle of a batch; a new one begins. Where it was moved to, what stands behind byte {length} comes again"
        )
    if is_other:
        raise Damaged(
            f"{live} is not the file that was being written: somebody has put another in its place; move it away, and a "
            "new one begins"
        )
    if now.length < length:
        raise Damaged(
            f"{live} has {now.length} bytes, but {length} were committed: somebody cut it in the middle of a batch; put "
            "the rest back, or move it away, and a new one begins"
        )
    return None


class Lengths:
    """The lengths of one partition's live files, read once and saved at the end, whatever number of batches between.

    Whoever holds the partition's lock may have them.

    What a batch leaves counts from the next touch of the file on, so that it goes with a batch that is undone.
    """

    def __init__(self, path: Path | None, layout: Layout = _DEFAULT) -> None:
        """Read what was saved, if anything is to be; what cannot be read is nothing known.

        Where the layout has a file a day, only the last day's are remembered.
        """
        self._path = path
        self._layout = layout
        self._changed = False
        self._known, self._fresh = _read(path) if path else ({}, {})

    def difference(self, live: str, now: Known | None) -> str | None:
        """Return what somebody else did to a live file since it was left, None for nothing; not while it is written."""
        if fresh := self._fresh.pop(live, None):
            self._known[live] = fresh
        known = self._known.get(live)
        return difference(live, known, now) if known else None

    def is_as_left(self, live: str, now: Known) -> bool:
        """Say whether a live file is exactly what it was when it was left."""
        known = self._known.get(live)
        return known is not None and known.length == now.length and known.inode in (0, now.inode)

    def number(self, live: str) -> int:
        """Return the number that the next segment had when the file was left: none is given twice."""
        known = self._fresh.get(live) or self._known.get(live)
        return known.number if known else 0

    def note(self, live: str, known: Known) -> None:
        """Remember how a batch leaves a live file."""
        self._fresh[live] = known
        self._changed = True

    def undo(self, live: str) -> None:
        """Forget what an undone batch left; what was found out before it is found again."""
        self._changed = self._fresh.pop(live, None) is not None or self._changed

    def __enter__(self) -> "Lengths":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.save()

    def save(self) -> None:
        """Write down what is known, when it has changed; that it cannot be written is left for the next time."""
        if not self._changed or not self._path:
            return
        self._forget_earlier_days()
        fresh = self._path.with_suffix(".lengths.new")
        try:
            with fresh.open("wb") as file:
                inode = os.fstat(file.fileno()).st_ino
                saved = {"known": _plain(self._known), "fresh": _plain(self._fresh)}
                body = json.dumps({"version": _VERSION, "inode": inode, **saved})[:-1]
                file.write(closed(body.encode()))
            fault("lengths_written")
            fresh.replace(self._path)
        except OSError:
            return
        self._changed = False

    def _forget_earlier_days(self) -> None:
        if not self._layout.has_date:
            return
        last = max(map(self._layout.date_of, self._known.keys() | self._fresh.keys()), default="")
        for files in (self._known, self._fresh):
            for live in self._layout.of_earlier_days(files, last):
                del files[live]


_Files = dict[str, Known]


def _plain(files: _Files) -> dict[str, tuple[int, int, int]]:
    return {live: (known.inode, known.length, known.number) for live, known in files.items()}


def _read(path: Path) -> tuple[_Files, _Files]:
    try:
        with path.open("rb") as file:
            data, inode = file.read(), os.fstat(file.fileno()).st_ino
        found = json.loads(data)
        if found["version"] == _VERSION and is_intact(data, found):
            # Where this file itself was copied, so were the others, and no inode says anything.
            is_here = found["inode"] == inode
            return _files(found["known"], is_here=is_here), _files(found["fresh"], is_here=is_here)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        pass  # that's fine: nothing is known
    return {}, {}


def _files(entries: dict[str, list[int]], *, is_here: bool) -> _Files:
    return {
        str(live): Known(int(entry[0]) if is_here else 0, int(entry[1]), int(entry[2]))
        for live, entry in entries.items()
    }
