"""The hosts' files of a replay: those that a receiver would have written, in a folder that nobody else writes to."""

import os
import secrets
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from broker.client.connection import Message
from broker.wire.delivery import Delivery
from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import Counts, Reader, Refused
from receiver.replay.tasks import Unit, reach
from receiver.storage import plan
from receiver.storage.calendar import Calendar
from receiver.storage.files import Output
from receiver.storage.layout import DEFAULT, Days, Layout
from receiver.storage.names import Names
from receiver.storage.packing import pack
from receiver.storage.quarantine import Quarantine
from receiver.storage.store import Store
from receiver.zones import named_zone

__all__ = ["HostFiles", "Order", "Written", "write"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is replayed from where into which folder, and how its files are cut and put away."""

    stage: Path
    reader: Reader
    rotate_size: int
    rotate_every: timedelta
    time_zone: str
    compress: str
    path_template: str = DEFAULT


@dataclass(frozen=True, slots=True)
class Written:
    """A unit that is on disk, in `folder`."""

    partition: int
    folder: Path
    counts: Counts


def write(unit: Unit, order: Order) -> Written:
    """Write a unit into a folder of this attempt's own, so that no attempt disturbs another; raises OSError and others."""
    os.umask(0o027)
    folder = order.stage / f"{unit.name}.{secrets.token_hex(4)}"
    folder.mkdir(mode=0o750)
    counts = Counts()
    with HostFiles(order, folder) as files:
        for run in order.reader.unit(unit):
            files.take(run.pieces)
            files.set_aside(run.refused)
            counts += run.counts
            reach(order.stage, unit, run.until)
        files.finish()
    return Written(unit.partition, folder, counts)


class HostFiles:
    """The files of one folder, to which lines are appended as they come."""

    def __init__(self, order: Order, folder: Path) -> None:
        """Open the folder; raises OSError."""
        self._folder = folder
        self._compress = order.compress
        zone = named_zone(order.time_zone)
        self._names = Names(Store.in_memory(), Layout(order.path_template), Days(zone))
        self._calendar = Calendar(order.rotate_every, zone)
        self._output = Output(
            folder, self._names.store, self._names, order.rotate_size, self._calendar
        )
        self._endings = Endings()
        self._quarantines: dict[int, Quarantine] = {}
        self._open = ExitStack()

    def __enter__(self) -> "HostFiles":
        self._open.enter_context(self._output)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def take(self, pieces: Iterable[Piece]) -> None:
        """Append pieces to their hosts' files, each host's in their order; raises OSError."""
        hosts: dict[str, list[plan.Run]] = {}
        for piece in pieces:
            live = self._names.live_name(piece.host, piece.file or None, piece.stored_at)
            runs = hosts.setdefault(live, [])
            if not runs or piece.stored_at >= runs[-1].end:
                end = self._calendar.period(piece.stored_at).end
                runs.append(plan.Run(end, piece.stored_at))
            payload = self._endings.joined(live, piece)
            runs[-1].pieces.append(payload)
            runs[-1].moment = piece.stored_at
        self._output.write(hosts)

    def set_aside(self, refused: Iterable[Refused]) -> None:
        """Set messages aside as a receiver does; raises OSError."""
        for item in refused:
            number, message = item.partition, item.message
            quarantine = self._quarantines.setdefault(number, Quarantine(self._folder, number))
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
            pack(self._folder / name, self._compress, lambda: False)
