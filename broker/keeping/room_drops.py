"""The file that names what was dropped: announced on disk before it goes, and marked when it is gone.

Who dies between the two leaves an announcement without an end; the next one looks what became of it and says so. Nothing
is ever dropped that does not stand here.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.app.folder import Folder, open_folder
from broker.keeping.room_dropped import Dropped

__all__ = ["NAME", "Announced", "DropBook"]

NAME = "dropped.jsonl"
_LARGEST = 64 * 1024 * 1024  # bytes, after which it is renamed to `dropped.jsonl.1`
_LOOK_BACK = 16 * 1024 * 1024
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Announced:
    """A range whose end nobody has marked: the messages of a subject in `[first, until)`."""

    batch: str
    subject: str
    first: int
    until: int


class DropBook:
    """The file, of one writer: whoever holds the store's lock."""

    def __init__(self, folder: Path) -> None:
        """Touch nothing yet."""
        self._path = folder / NAME

    def announce(self, batch: str, now: str, ranges: Sequence[Dropped]) -> None:
        """Write what is about to go, on disk when this returns; raises OSError."""
        self._turn()
        head = {"version": _VERSION, "batch": batch, "time": now, "state": "announced"}
        self._append([head | one.as_json() for one in ranges])

    def end(self, batch: str, now: str, left: Sequence[Announced] = ()) -> None:
        """Mark the end of a batch; of what is `left` nothing below its `first` is there any more. Raises OSError."""
        about: dict[str, Any] = {
            "version": _VERSION,
            "batch": batch,
            "time": now,
            "state": "dropped",
        }
        if left:
            about["state"] = "interrupted"
            about["left"] = [
                {"subject": one.subject, "first": one.first, "until": one.until} for one in left
            ]
        self._append([about])

    def unfinished(self) -> list[Announced]:
        """Return the ranges that were announced and not marked; raises OSError."""
        open_: dict[str, list[Announced]] = {}
        for entry in self._entries():
            batch = str(entry["batch"])
            if entry.get("state") != "announced":
                open_.pop(batch, None)
                continue
            one = Announced(batch, str(entry["subject"]), int(entry["first"]), int(entry["until"]))
            open_.setdefault(batch, []).append(one)
        return [one for ranges in open_.values() for one in ranges]

    def _entries(self) -> list[dict[str, Any]]:
        try:
            with (
                open_folder(self._path.parent) as folder,
                os.fdopen(folder.open(NAME, os.O_RDONLY), "rb") as file,
            ):
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOOK_BACK))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                entry = json.loads(line)
                found.append({key: entry[key] for key in entry} | {"batch": entry["batch"]})
            except (ValueError, KeyError, TypeError):
                continue  # a beginning that was cut, or a torn end: nothing went by it
        return found

    def _turn(self) -> None:
        try:
            grown = self._path.stat().st_size > _LARGEST
        except FileNotFoundError:
            return
        if grown:
            self._path.replace(self._path.with_name(f"{NAME}.1"))

    def _append(self, entries: Sequence[dict[str, Any]]) -> None:
        data = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        with open_folder(self._path.parent) as folder:
            self._append_in(folder, data)

    def _append_in(self, folder: Folder, data: bytes) -> None:
        descriptor = folder.open(NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # behind an entry that was torn
            if os.write(descriptor, data) != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not size:
            folder.sync()
