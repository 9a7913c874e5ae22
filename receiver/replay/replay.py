"""The wiring of a replay: what of the stream is wanted, and where its lines go.

stream ──▶ Spark tasks (hosts of a partition each) ──▶ folders of attempts ──▶ --output     files, at full speed
stream ──▶ driver, in the order of storage ──▶ --output -, or files                         at any --speed
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
from functools import partial
from pathlib import Path

import click

from broker.app.exits import OperatorError
from broker.app.moment import Moment, read_moment
from broker.app.selection import Selection
from receiver.replay import folder
from receiver.replay.files import HostFiles, Order, write
from receiver.replay.progress import run_tasks
from receiver.replay.reading import Counts, Reader
from receiver.replay.settings import ReplaySettings, read_speed
from receiver.replay.stream import Standard, play
from receiver.replay.survey import Span, Wanted, survey
from receiver.replay.tasks import cut_evenly
from receiver.spark.session import spark_context
from receiver.zones import named_zone

__all__ = ["Summary", "replay"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay did: `[first, until)` are sequences; `gone` says what the stream no longer held."""

    first: int
    until: int
    counts: Counts
    gone: str

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        about = {"first": self.first, "until": self.until}
        return {**about, **asdict(self.counts), "gone": self.gone}

    def as_json(self) -> str:
        """Write it for programs."""
        return json.dumps(self.as_dict())

    def as_text(self) -> str:
        """Write it for people."""
        counts, last = self.counts, self.until - 1
        text = f"replayed {counts.lines:,} lines of sequences {self.first} to {last}"
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
    span = asyncio.run(survey(_wanted(settings), settings.access))
    if span.gone:
        logger.warning("%s: no longer in the stream", span.gone)
    is_piped = str(settings.output) == "-"
    output = settings.output.absolute()
    stage = output if is_piped else folder.prepare(output, settings.path_template)
    counts, gone = Counts(), span.gone
    if span.is_empty:
        logger.warning("nothing was stored in that time: nothing to replay")
    else:
        with _stopped_by_sigterm():
            if is_piped:
                counts = _to_standard_output(settings, span)
            else:
                counts = _into_files(settings, span, _order(settings, stage), output)
        gone = _removed_since(settings, span) or gone
    summary = Summary(span.first, max(span.first, span.until), counts, gone)
    if not is_piped:
        folder.finish(output, summary.as_dict())
    return summary


def _to_standard_output(settings: ReplaySettings, span: Span) -> Counts:
    sink = Standard(1, settings.prefix)
    return play(_reader(settings), span, read_speed(settings.speed), sink)


def _into_files(settings: ReplaySettings, span: Span, order: Order, output: Path) -> Counts:
    if speed := read_speed(settings.speed):
        with HostFiles(order, output) as files:
            counts = play(order.reader, span, speed, files)
            files.finish()
        return counts
    with spark_context(
        settings.master,
        app_name="logreceiver replay",
        conf=settings.spark,
        executor_python=settings.executor_python,
    ) as spark:
        units = cut_evenly(span.partitions, span.first, span.until, spark.defaultParallelism)
        written = run_tasks(spark, units, partial(write, order=order), order.stage)
        attempts = [(unit.partition, unit.folder) for unit in written]
        folder.publish(output, attempts, settings.path_template)
    return sum((unit.counts for unit in written), Counts())


def _reader(settings: ReplaySettings) -> Reader:
    access = settings.access.absolute(Path.cwd())
    return Reader(settings.server, access, Selection(settings.host, settings.file))


def _order(settings: ReplaySettings, stage: Path) -> Order:
    return Order(
        stage,
        _reader(settings),
        int(settings.rotate_size),  # a type of pydantic's, which executors lack
        settings.rotate_every,
        settings.time_zone,
        settings.compress,
        settings.path_template,
    )


def _removed_since(settings: ReplaySettings, span: Span) -> str:
    """Return what retention has removed meanwhile of what was to be read, empty for nothing."""
    now_first = asyncio.run(survey(_wanted(settings), settings.access)).earliest
    if now_first <= span.first:
        return ""
    gone = f"sequences {span.first} to {min(now_first, span.until) - 1}"
    logger.warning("%s were removed by retention meanwhile; lines of them may be absent", gone)
    return gone


def _wanted(settings: ReplaySettings) -> Wanted:
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    numbers = None if "all" in settings.partition else tuple(map(int, settings.partition))
    until = None if settings.until == "now" else _moment(settings, "until", now)
    return Wanted(settings.server, numbers, _moment(settings, "since", now), until)


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
