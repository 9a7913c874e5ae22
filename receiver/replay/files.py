"""A task of a replay into files: writes the lines of a unit into a folder of this attempt's own. Publishes nothing."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from broker.app.exits import OperatorError
from broker.client.connection import Message
from broker.wire.delivery import Delivery
from receiver.consume.judging import Endings, Piece
from receiver.replay.again import Reader, Refused, nanoseconds
from receiver.replay.attempts import Attempt, attempt
from receiver.replay.units import Unit
from receiver.storage.calendar import Calendar
from receiver.storage.files import Output
from receiver.storage.layout import DEFAULT, Days, Layout
from receiver.storage.names import Names
from receiver.storage.packing import pack
from receiver.storage.plan import Run
from receiver.storage.position import Damaged
from receiver.storage.quarantine import Quarantine
from receiver.storage.store import Store
from receiver.zones import named_zone

__all__ = ["Failed", "Hosts", "Order", "Written", "keep_refused", "write"]


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

    def names(self) -> Names:
        """Return what names the live files in a folder that nobody else writes to."""
        days = Days(named_zone(self.time_zone))
        return Names(Store.in_memory(), Layout(self.path_template), days)

    def output(self, folder: Path, names: Names) -> Output:
        """Open a folder for writing; raises OSError."""
        calendar = Calendar(self.rotate_every, named_zone(self.time_zone))
        return Output(folder, names.store, names, self.rotate_size, calendar)


@dataclass(frozen=True, slots=True)
class Written:
    """A unit that is on disk, in `folder`; `size` is in bytes."""

    partition: int
    folder: Path
    lines: int
    size: int
    refused: int
    findings: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit that could not be written, and why, for a person."""

    detail: str


def write(unit: Unit, order: Order) -> Written | Failed:
    """Write a unit and tell how it ended."""
    os.umask(0o027)
    try:
        with attempt(order.stage, unit) as started:
            return _write(unit, order, started)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return Failed(f"{name}{error.strerror or error}")
    except (OperatorError, Damaged) as error:
        return Failed(str(error))


def _write(unit: Unit, order: Order, started: Attempt) -> Written:
    folder = started.folder
    lines = size = refused = findings = 0
    names = order.names()
    with order.output(folder, names) as output:
        hosts, aside = Hosts(output, names), Quarantine(folder, unit.partition)
        for run in order.reader.runs(unit):
            hosts.append(run.pieces)
            keep_refused(aside, run.refused)
            lines += sum(piece.payload.count(b"\n") for piece in run.pieces)
            size += sum(len(piece.payload) for piece in run.pieces)
            refused += len(run.refused)
            findings += run.findings
            started.reach(run.until)
        output.sync()
        aside.sync()
        closed = tuple(output.closed)
    for name in closed:
        pack(folder / name, order.compress, lambda: False)
    return Written(unit.partition, folder, lines, size, refused, findings)


class Hosts:
    """The hosts' files of one folder, as lines come in."""

    def __init__(self, output: Output, names: Names) -> None:
        """Know no file yet."""
        self._output = output
        self._names = names
        self._endings = Endings()

    def append(self, pieces: Iterable[Piece]) -> None:
        """Append pieces to their hosts' files, each host's in their order; raises OSError."""
        hosts: dict[str, list[Run]] = {}
        for piece in pieces:
            live = self._names.live_name(piece.host, piece.file or None, piece.stored_at)
            runs = hosts.setdefault(live, [])
            if not runs or piece.stored_at >= runs[-1].end:
                end = self._output.calendar.period(piece.stored_at).end
                runs.append(Run(end, piece.stored_at))
            payload = self._endings.joined(live, piece)
            runs[-1].pieces.append(payload)
            runs[-1].moment = piece.stored_at
        self._output.write(hosts)


def keep_refused(aside: Quarantine, refused: Iterable[Refused]) -> None:
    """Set messages aside as a receiver does; raises OSError."""
    for item in refused:
        message = item.message
        aside.set_aside(
            Delivery(1, message.sequence, 0, nanoseconds(message), 0),
            Message(None, message.subject, data=message.payload, headers=message.headers),  # type: ignore[arg-type]
            item.reason,
        )
