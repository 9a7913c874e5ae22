"""`logreceiver replay`: what of the streams is wanted, and where its lines go.

One process reads and writes: it takes hundreds of megabytes a second, less time than Spark needs to start for most replays.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from broker.app.exits import OperatorError
from broker.app.moment import Moment, read_moment
from broker.app.selection import Selection
from broker.client.connection import Connection
from receiver.replay.files import HostFiles, Order, finish, prepare
from receiver.replay.reading import Counts, Reader
from receiver.replay.settings import ReplaySettings, read_speed
from receiver.replay.stream import Standard, play
from receiver.replay.survey import Span, Wanted, survey
from receiver.zones import named_zone

__all__ = ["Summary", "replay"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay did with a span; `gone` says what the streams no longer held."""

    span: Span
    counts: Counts
    gone: str

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        streams = {one.stream: [one.first, max(one.first, one.until)] for one in self.span.streams}
        return {"streams": streams, **asdict(self.counts), "gone": self.gone}

    def as_json(self) -> str:
        """Write it for programs."""
        return json.dumps(self.as_dict())

    def as_text(self) -> str:
        """Write it for people."""
        counts = self.counts
        places = (f"{one.stream} {one.first} to {one.until - 1}" for one in self.span.streams)
        text = f"replayed {counts.lines:,} lines of sequences {', '.join(places)}"
        if counts.refused:
            text += f"; {counts.refused} messages hold none and lie in .quarantine"
        if counts.findings:
            text += f"; {counts.findings} gaps or repeats of source files met"
        return text


def replay(settings: ReplaySettings) -> Summary:
    """Replay what the settings ask for and return what was done; raises OperatorError kinds, click.UsageError.

    Killed at any moment it leaves a folder that says so, and that the same command begins anew.
    """
    os.umask(0o027)
    try:
        return _replay(settings)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; the same command begins anew when that is mended"
        ) from None


def _replay(settings: ReplaySettings) -> Summary:
    span = _survey(settings)
    if span.gone:
        logger.warning("%s: no longer in the stream", span.gone)
    is_piped = str(settings.output) == "-"
    order = _order(settings)
    if not is_piped:
        prepare(order.output, order.path_template)
    counts, gone = Counts(), span.gone
    if not span.length:
        logger.warning("nothing was stored in that time: nothing to replay")
    else:
        with _stopped_by_sigterm():
            counts = _written(settings, span, None if is_piped else order)
        gone = _removed_since(settings, span) or gone
    summary = Summary(span, counts, gone)
    if not is_piped:
        finish(order.output, summary.as_dict())
    return summary


def _written(settings: ReplaySettings, span: Span, order: Order | None) -> Counts:
    reader, speed = _reader(settings), read_speed(settings.speed)
    if order is None:
        return play(reader, span, speed, Standard(1, settings.prefix))
    with HostFiles(order) as files:
        counts = play(reader, span, speed, files)
        files.finish()
    return counts


def _reader(settings: ReplaySettings) -> Reader:
    access = settings.access.absolute(Path.cwd())
    return Reader(settings.server, access, Selection(settings.host, settings.file))


def _order(settings: ReplaySettings) -> Order:
    return Order(
        settings.output.absolute(),
        int(settings.rotate_size),
        settings.rotate_every,
        settings.time_zone,
        settings.compress,
        settings.path_template,
    )


def _survey(settings: ReplaySettings) -> Span:
    async def ask() -> Span:
        connection = Connection(settings.server, "logreceiver replay", access=settings.access)
        try:
            return await survey(connection, _wanted(settings))
        finally:
            await connection.close()

    return asyncio.run(ask())


def _removed_since(settings: ReplaySettings, span: Span) -> str:
    """Return what retention has removed meanwhile of what was to be read, empty for nothing."""
    now = {one.stream: one.earliest for one in _survey(settings).streams}
    gone = "; ".join(
        f"sequences {one.first} to {min(now[one.stream], one.until) - 1}"
        for one in span.streams
        if one.length and now[one.stream] > one.first
    )
    if gone:
        logger.warning("%s were removed by retention meanwhile; lines of them may be absent", gone)
    return gone


def _wanted(settings: ReplaySettings) -> Wanted:
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    numbers = None if "all" in settings.partition else tuple(map(int, settings.partition))
    until = None if settings.until == "now" else _moment(settings, "until", now)
    return Wanted(numbers, _moment(settings, "since", now), until)


def _moment(settings: ReplaySettings, name: str, now: datetime) -> Moment:
    try:
        return read_moment(getattr(settings, name), now, named_zone(settings.time_zone))
    except ValueError as error:
        raise click.UsageError(f"--{name}: {error}") from None


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise OperatorError("told to stop before the end; the same command begins anew")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
