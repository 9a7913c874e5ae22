"""The files of a replay: those that a receiver would have written, in a folder that nobody else writes to.

The folder is taken only when it is empty or that of an unfinished replay, all of which goes. `.replay.json` in it says
whether the replay is done.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.app.files import open_folder, remove_leftovers, replacing
from broker.client.connection import Message
from broker.wire.delivery import Delivery
from receiver.consume.judging import Endings, Piece
from receiver.consume.marked_folders import MARKED
from receiver.replay.reading import RefusedMessage
from receiver.storage import plan
from receiver.storage.disk import read, sync_folder
from receiver.storage.folders import make_folder
from receiver.storage.layout import DEFAULT, Days, Layout
from receiver.storage.names import Names
from receiver.storage.output import Output
from receiver.storage.quarantine import Quarantine
from receiver.storage.retention import compress_segment
from receiver.storage.rotation import Calendar
from receiver.storage.store import Store
from receiver.zones import named_zone

__all__ = ["FileSettings", "HostFiles", "finish", "prepare"]

_MARK = ".replay.json"
_UNDER_WAY = "under way"


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Into which folder lines are written, and how its files are named, rotated and compressed."""

    output: Path
    rotate_size: int = 0
    rotate_every: timedelta = timedelta()
    time_zone: str = "UTC"
    compress: str = "none"
    path_template: str = DEFAULT


class HostFiles:
    """The files of one folder, to which lines are appended as they come."""

    def __init__(self, settings: FileSettings) -> None:
        """Open the folder; raises OSError."""
        self._settings = settings
        zone = named_zone(settings.time_zone)
        self._names = Names(Store.in_memory(), Layout(settings.path_template), Days(zone))
        self._calendar = Calendar(settings.rotate_every, zone)
        self._output = Output(
            settings.output, self._names.store, self._names, settings.rotate_size, self._calendar
        )
        self._endings = Endings()
        self._quarantines: dict[int, Quarantine] = {}

    def __enter__(self) -> "HostFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._output.__exit__()

    def take(self, pieces: Sequence[Piece]) -> None:
        """Append pieces to their hosts' files, each host's in their order; raises OSError."""
        hosts: dict[str, list[plan.Run]] = {}
        for piece in pieces:
            live = self._names.live_name(piece.host, piece.file or None, piece.stored_at)
            payload = self._endings.joined(live, piece)
            runs = hosts.setdefault(live, [])
            plan.add_piece(runs, payload, piece.stored_at, self._calendar)
        self._output.write(hosts)

    def set_aside(self, refused: Iterable[RefusedMessage]) -> None:
        """Set messages aside as a receiver does; raises OSError."""
        for item in refused:
            number, message = item.partition, item.message
            quarantine = self._quarantines.setdefault(
                number, Quarantine(self._settings.output, number)
            )
            quarantine.set_aside(
                Delivery(1, message.sequence, 0, item.stored_at, 0),
                Message(None, message.subject, data=message.payload, headers=message.headers),  # type: ignore[arg-type]
                item.reason,
            )

    def finish(self) -> None:
        """Bring everything to disk, and compress what was closed; raises OSError."""
        self._output.sync()
        for quarantine in self._quarantines.values():
            quarantine.sync()
        for name in self._output.closed:
            compress_segment(self._settings.output / name, self._settings.compress, lambda: False)


def prepare(output: Path) -> None:
    """Make a folder ready for a replay; what an unfinished one has left there goes.

    Raises `ConfigurationError` when it belongs to a receiver, holds a finished replay or anything else, OSError.
    """
    make_folder(output)
    with open_folder(output) as folder:
        remove_leftovers(folder, _MARK)  # of a replay that died, or had no room, before it began
        names = folder.names()
    if ".logreceiver" in names or MARKED in names:
        raise ConfigurationError(
            f"{output} is a receiver's: a replay never touches its files; give an empty --output"
        )
    if names and _MARK not in names:
        raise ConfigurationError(
            f"{output} is not empty; a replay is written into a folder of its own"
        )
    if _MARK in names and _state(output) != _UNDER_WAY:
        raise ConfigurationError(f"{output} holds a finished replay; give an empty --output")
    for path in (output / name for name in names if name != _MARK):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    _write_mark(output, {"state": _UNDER_WAY})


def _state(output: Path) -> object:
    try:
        return json.loads(read(output / _MARK))["state"]
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{output / _MARK} is damaged; give an empty --output") from None


def finish(output: Path, summary: dict[str, object]) -> None:
    """Say that the replay is whole, on disk when this returns; raises OSError."""
    sync_folder(output)
    _write_mark(output, {"state": "done", **summary})


def _write_mark(output: Path, entry: dict[str, object]) -> None:
    with open_folder(output) as folder, replacing(folder, _MARK, 0o644) as half:
        half.file.write(json.dumps({"version": 1, **entry}).encode() + b"\n")
