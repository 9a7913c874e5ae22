"""How long live files were when they were last left, so that what other hands did to them since can be told by name.

A hint, never the truth: what it says may be as old as the last death of a machine, and nothing is cut or undone by it. A file
of its own holds all that was known once, and a line for each batch since: where a process dies, what it has committed is known.
Numbers are more than a hint: once closed segments were moved away, nobody else knows which were given. A batch that gives one
has it on disk before it counts, and fails where that cannot be; of a file whose lengths are no longer so they are kept.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from broker.app.checksum import closed, is_intact
from broker.app.faults import fault
from broker.app.folder import open_folder
from broker.app.whole import replacing
from receiver.writing.journal import PreImage
from receiver.writing.known import Known, difference
from receiver.writing.layout import Layout
from receiver.writing.opening import descriptor_of, opened

__all__ = ["Lengths"]

_VERSION = 1
_GROWN = 64 * 1024  # bytes of batches after which all that is known is written anew
_DEFAULT = Layout()
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError)


class Lengths:
    """The lengths of one partition's live files, read once and kept batch by batch.

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
        self._day = ""
        self._left: _Files = {}  # by the batch that is being written
        self._has_given = False
        saved = _read(path) if path else _Saved()
        given = _numbers(_outdated(path)) if path else {}
        for live in given.keys() - saved.known.keys() - saved.fresh.keys():
            saved.known[live] = Known(0, 0, given[live])
        self._known, self._fresh = saved.known, saved.fresh
        self._size, self._most = saved.size, saved.first + _GROWN

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
        self._has_given |= known.number > max(self.number(live), 1)
        self._fresh[live] = self._left[live] = known
        self._changed = True

    def keep(self) -> None:
        """Write down how a batch leaves its files, before it counts: whoever comes after a death knows it too.

        On disk when this returns if the batch has given numbers; raises OSError when these cannot be kept.
        """
        left, self._left = self._left, {}
        has_given, self._has_given = self._has_given, False
        if not self._path or not left:
            return
        is_grown = self._size > self._most or self._is_of_new_day(left)
        line = _line({"left": _plain(left)})
        if is_grown or not self._append(self._path, line, with_sync=has_given):
            try:
                self._write_anew(self._path)
            except OSError as error:
                if has_given:
                    error.filename = str(self._path)
                    raise

    def _append(self, path: Path, line: bytes, *, with_sync: bool) -> bool:
        with suppress(OSError):
            descriptor = descriptor_of(path, os.O_WRONLY | os.O_APPEND)
            try:
                is_ours = 0 < self._size == os.fstat(descriptor).st_size
                if is_ours and os.write(descriptor, line) == len(line):
                    if with_sync:
                        os.fdatasync(descriptor)
                    self._size += len(line)
                    self._changed = False
                    return True
            finally:
                os.close(descriptor)
        return False

    def undo(self, images: Iterable[PreImage], gone: Iterable[str]) -> None:
        """Forget what an undone batch left of files, and of those that are `gone` and told all but their numbers.

        On disk when this returns, as the undone batch may be: what was found out before it is found again.
        """
        for image in images:
            fresh = self._fresh.pop(image.name, None)
            is_of_another = image.name not in self._left  # a batch before, by a process that died
            if (
                fresh
                and is_of_another
                and (fresh.length, fresh.number) == (image.length, image.number)
            ):
                self._known[image.name] = fresh
        given = {image.name: image.number + 1 for image in images}  # it may have been closed first
        for live in gone:
            self._known[live] = Known(0, 0, max(self.number(live), given.get(live, 0)))
        self._left.clear()
        self._has_given = False
        self._changed = True
        self.save()

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
        """Write all that is known anew, when it has changed; where that fails only numbers are, as no length is so any more."""
        if self._changed and self._path:
            with suppress(OSError):
                self._write_anew(self._path)

    def _write_anew(self, path: Path) -> None:
        self._forget_earlier_days()
        saved = {"known": _plain(self._known), "fresh": _plain(self._fresh)}
        try:
            with open_folder(path.parent) as folder, replacing(folder, path.name, 0o644) as half:
                inode = os.fstat(half.file.fileno()).st_ino
                whole = _line({"version": _VERSION, "inode": inode, **saved})
                half.file.write(whole)
                half.file.flush()
                fault("lengths_written")
        except OSError:
            self._size = 0
            _put_aside(path)
            raise
        with suppress(OSError):  # that's fine: no number in it is too high
            _outdated(path).unlink(missing_ok=True)
        self._changed = False
        self._size, self._most = len(whole), len(whole) + _GROWN

    def _is_of_new_day(self, left: Iterable[str]) -> bool:
        if not self._layout.has_date:
            return False
        before, self._day = self._day, max(self._day, *map(self._layout.date_of, left))
        return before < self._day

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


@dataclass(slots=True)
class _Saved:
    """What was read: `first` bytes say what was known once, `size` are all, 0 where no more may be appended."""

    known: _Files = field(default_factory=dict)
    fresh: _Files = field(default_factory=dict)
    first: int = 0
    size: int = 0


def _line(members: Mapping[str, object]) -> bytes:
    return closed(json.dumps(members)[:-1].encode()) + b"\n"


def _read(path: Path) -> _Saved:
    try:
        with opened(path, "rb") as file:
            data, inode = file.read(), os.fstat(file.fileno()).st_ino
        first, *lines = data.splitlines(keepends=True)
        opening = _members(first)
        if opening["version"] != _VERSION:
            return _Saved()
        # Where this file itself was copied, so were the others, and no inode says anything.
        is_here = opening["inode"] == inode
        found = _Saved(
            _files(opening["known"], is_here=is_here), _files(opening["fresh"], is_here=is_here)
        )
    except (OSError, *_UNREADABLE):
        return _Saved()  # that's fine: nothing is known
    found.first = len(first)
    # who wrote the last line may have died
    whole = [line for line in lines if line.endswith(b"\n")]
    taken = [_leave(found, line, is_here=is_here) for line in whole]
    if all(taken):
        found.size = len(data) if data.endswith(b"\n") else 0
        return found
    return _Saved({live: Known(0, 0, number) for live, number in _numbers_in(found).items()})


def _numbers_in(saved: _Saved) -> dict[str, int]:
    return {live: known.number for live, known in {**saved.known, **saved.fresh}.items()}


def _outdated(path: Path) -> Path:
    """Return where lengths are that are no longer so; the numbers among them still were given."""
    return path.with_suffix(".numbers")


def _put_aside(path: Path) -> None:
    try:
        path.replace(_outdated(path))  # which takes no room on a full disk
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _numbers(path: Path) -> dict[str, int]:
    return _numbers_in(_read(path))


def _members(line: bytes) -> dict[str, Any]:
    """Return what a line holds; raises ValueError and others where it is not as written."""
    found = json.loads(line)
    if not is_intact(line, found):
        raise ValueError("not as written")
    return dict(found)


def _leave(saved: _Saved, line: bytes, *, is_here: bool) -> bool:
    """Take what a batch has left from its line; False where that cannot be read."""
    try:
        left = _files(_members(line)["left"], is_here=is_here)
    except _UNREADABLE:
        return False
    for live, known in left.items():
        if before := saved.fresh.pop(live, None):
            saved.known[live] = before
        saved.fresh[live] = known
    return True


def _files(entries: dict[str, list[int]], *, is_here: bool) -> _Files:
    return {
        str(live): Known(int(entry[0]) if is_here else 0, int(entry[1]), int(entry[2]))
        for live, entry in entries.items()
    }
