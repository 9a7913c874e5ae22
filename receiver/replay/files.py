"""The files of a replay: those that a receiver would have written, in a folder that nobody else writes to.

The folder is taken only when it is empty or that of an unfinished replay, whose files go. `.replay.json` in it says whether
the replay is done.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from broker.app.exits import ConfigurationError
from broker.app.folder import open_folder
from broker.app.whole import clear_away, replacing
from broker.client.connection import Message
from broker.wire.delivery import Delivery
from receiver.consume.judging import Endings, Piece
from receiver.consume.place import MARKED
from receiver.replay.reading import Refused
from receiver.storage import plan, rotation
from receiver.storage.calendar import Calendar
from receiver.storage.compression import compress_segment
from receiver.storage.files import Output
from receiver.storage.folders import make_folder, walk
from receiver.storage.layout import DEFAULT, Days, Layout
from receiver.storage.names import Names
from receiver.storage.opening import read, sync_folder
from receiver.storage.quarantine import FOLDER, Quarantine
from receiver.storage.store import Store
from receiver.zones import named_zone

__all__ = ["HostFiles", "Order", "finish", "prepare"]

_MARK = ".replay.json"


@dataclass(frozen=True, slots=True)
class Order:
    """Into which folder lines are written, and how its files are named, rotated and compressed."""

    output: Path
    rotate_size: int = 0
    rotate_every: timedelta = timedelta()
    time_zone: str = "UTC"
    compress: str = "none"
    path_template: str = DEFAULT


class HostFiles:
    """The files of one folder, to which lines are appended as they come."""

    def __init__(self, order: Order) -> None:
        """Open the folder; raises OSError."""
        self._order = order
        zone = named_zone(order.time_zone)
        self._names = Names(Store.in_memory(), Layout(order.path_template), Days(zone))
        self._calendar = Calendar(order.rotate_every, zone)
        self._output = Output(
            order.output, self._names.store, self._names, order.rotate_size, self._calendar
        )
        self._endings = Endings()
        self._quarantines: dict[int, Quarantine] = {}

    def __enter__(self) -> "HostFiles":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    def set_aside(self, refused: Iterable[Refused]) -> None:
        """Set messages aside as a receiver does; raises OSError."""
        for item in refused:
            number, message = item.partition, item.message
            quarantine = self._quarantines.setdefault(
                number, Quarantine(self._order.output, number)
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
            compress_segment(self._order.output / name, self._order.compress, lambda: False)


def prepare(output: Path, template: str = DEFAULT) -> None:
    """Make a folder ready for a replay.

    Raises `ConfigurationError` when it belongs to a receiver, holds a finished replay or anything else, OSError.
    """
    make_folder(output)
    with open_folder(output) as folder:
        clear_away(folder, _MARK)  # of a replay that died, or had no room, before it began
        names = folder.names()
    if ".logreceiver" in names or MARKED in names:
        raise ConfigurationError(
            f"{output} is a receiver's: a replay never touches its files; give an empty --output"
        )
    if _MARK in names:
        _clear(output, names)
    elif names:
        raise ConfigurationError(
            f"{output} is not empty; a replay is written into a folder of its own"
        )
    _write_mark(output, {"state": "under way", "path_template": template})


def _clear(output: Path, names: Iterable[str]) -> None:
    try:
        mark = json.loads(read(output / _MARK))
        layout = Layout(mark["path_template"]) if mark["state"] != "done" else None
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{output / _MARK} is damaged; give an empty --output") from None
    if layout is None:
        raise ConfigurationError(f"{output} holds a finished replay; give an empty --output")
    left = sorted(set(names) - {_MARK})
    for name in left:
        if name != FOLDER and not _is_of(layout, output, name):
            raise ConfigurationError(
                f"{output} holds {name} beside an unfinished replay; give an empty --output"
            )
    for name in left:
        path = output / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _is_of(layout: Layout, output: Path, name: str) -> bool:
    """Say whether all that is at a name in the output folder has a path of the layout; raises OSError."""
    path = output / name
    is_folder = path.is_dir() and not path.is_symlink()
    paths: Iterable[str] = walk(output, name) if is_folder else (name,)
    if name.startswith("."):
        return name.endswith(".new")  # half compressed
    return all(layout.holds(rotation.live_of(p)) for p in paths)


def finish(output: Path, summary: dict[str, object]) -> None:
    """Say that the replay is whole, on disk when this returns; raises OSError."""
    sync_folder(output)
    _write_mark(output, {"state": "done", **summary})


def _write_mark(output: Path, entry: dict[str, object]) -> None:
    with open_folder(output) as folder, replacing(folder, _MARK, 0o644) as half:
        half.file.write(json.dumps({"version": 1, **entry}).encode() + b"\n")
