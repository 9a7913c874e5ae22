"""The wiring of a replay: a batch Spark job over a span of the stream, and where its lines go.

stream ──▶ tasks (hosts of a partition each) ──▶ folders of attempts ──▶ --output     files, at full speed
stream ──▶ tasks (hosts of a partition each) ──▶ Parquet ──▶ --output                 --format parquet
stream ──▶ tasks (a slice of sequences each) ──▶ driver ──▶ --output -, or files      merged, at any --speed
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from pyspark import SparkContext
from pyspark.sql import SparkSession

from broker.exits import OperatorError
from receiver.replaying import feed, files, folder
from receiver.replaying.again import Reader
from receiver.replaying.aside import Aside, beside
from receiver.replaying.attempts import reached
from receiver.replaying.files import Failed, Order, Written
from receiver.replaying.moment import Moment, read_moment
from receiver.replaying.pace import read_speed
from receiver.replaying.pacing import Pacing
from receiver.replaying.plan import Span, Wanted, survey
from receiver.replaying.progress import Progress
from receiver.replaying.selection import Selection, cut_evenly
from receiver.replaying.settings import ReplaySettings
from receiver.replaying.sink import HostFiles, Sink, Standard
from receiver.replaying.table import refuse_without_arrow, write_table
from receiver.spark.session import is_local, spark_context
from receiver.zones import named_zone

__all__ = ["Summary", "as_json", "as_text", "replay"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay did: `[first, until)` are sequences, `size` is in bytes.

    `refused` counts messages that a receiver sets aside, `findings` the gaps and repeats of source files that were met;
    `gone` says what the stream no longer held.
    """

    first: int
    until: int
    lines: int = 0
    size: int = 0
    refused: int = 0
    findings: int = 0
    gone: str = ""

    def plus(self, lines: int, size: int, refused: int, findings: int) -> "Summary":
        """Return the summary with more done."""
        return replace(
            self,
            lines=self.lines + lines,
            size=self.size + size,
            refused=self.refused + refused,
            findings=self.findings + findings,
        )


def as_json(summary: Summary) -> str:
    """Write a summary for programs."""
    return json.dumps(asdict(summary))


def as_text(summary: Summary) -> str:
    """Write a summary for people."""
    told = f"replayed {summary.lines:,} lines of sequences {summary.first} to {summary.until - 1}"
    if summary.refused:
        told += f"; {summary.refused} messages hold none and lie in .quarantine"
    if summary.findings:
        told += f"; {summary.findings} gaps or repeats of source files met"
    return told


def replay(settings: ReplaySettings) -> Summary:
    """Replay what the settings ask for and return what was done; raises OperatorError kinds, click.UsageError.

    Killed at any moment it leaves a folder that says so, and that the same command begins anew.
    """
    os.umask(0o027)
    if settings.format == "parquet" and (_is_piped(settings) or read_speed(settings.speed)):
        raise click.UsageError("--format parquet needs a folder as --output, and --speed instant")
    try:
        return _replay(settings)
    except BrokenPipeError:
        raise
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; the same command begins anew when that is mended"
        ) from None


def _replay(settings: ReplaySettings) -> Summary:
    span = asyncio.run(survey(_wanted(settings), settings.access, feed.LIMIT))
    if span.gone:
        logger.warning("%s: no longer in the stream", span.gone)
    summary = Summary(span.first, max(span.first, span.until), gone=span.gone)
    output = settings.output.absolute()
    stage = output if _is_piped(settings) else folder.prepare(output)
    if span.is_empty:
        logger.warning("nothing was stored in that time: nothing to replay")
    else:
        summary = _run(_Replay(settings, span, output, stage), summary)
    if not _is_piped(settings):
        folder.finish(output, asdict(summary))
    return summary


def _run(job: "_Replay", summary: Summary) -> Summary:
    settings = job.settings
    with (
        _stopped_by_sigterm(),
        spark_context(
            settings.master,
            app_name="logreceiver replay",
            conf=settings.spark,
            executor_python=settings.executor_python,
        ) as spark,
        beside() as aside,
    ):
        if settings.format == "parquet":
            summary = job.into_table(spark, aside, summary)
        elif _is_piped(settings) or read_speed(settings.speed):
            summary = job.through_driver(spark, aside, summary)
        else:
            summary = job.into_files(spark, aside, summary)
    now_first = asyncio.run(survey(_wanted(settings), settings.access, feed.LIMIT)).earliest
    if now_first > job.span.first:
        gone = f"sequences {job.span.first} to {min(now_first, job.span.until) - 1}"
        logger.warning("%s were removed by retention meanwhile; lines of them may be absent", gone)
        return replace(summary, gone=gone)
    return summary


@dataclass(frozen=True, slots=True)
class _Replay:
    settings: ReplaySettings
    span: Span
    output: Path
    stage: Path

    @property
    def reader(self) -> Reader:
        settings = self.settings
        return Reader(
            settings.server,
            settings.access.absolute(Path.cwd()),
            Selection(settings.host, settings.file),
        )

    @property
    def order(self) -> Order:
        settings = self.settings
        return Order(
            self.stage,
            self.reader,
            int(settings.rotate_size),  # a type of pydantic's, which executors lack
            settings.rotate_every,
            settings.time_zone,
            settings.compress,
        )

    def into_files(self, spark: SparkContext, aside: Aside, summary: Summary) -> Summary:
        span = self.span
        units = cut_evenly(span.partitions, span.first, span.until, spark.defaultParallelism)
        tasks = spark.parallelize(units, len(units)).map(partial(files.write, order=self.order))
        with Progress(sys.stderr, time.monotonic) as progress:
            outcomes: list[Written | Failed] = aside.wait(
                tasks.collect, lambda: progress.show(reached(self.stage, units))
            )
        done = []
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise OperatorError(f"the replay was given up: {outcome.detail}")
            summary = summary.plus(outcome.lines, outcome.size, outcome.refused, outcome.findings)
            done.append((outcome.partition, outcome.folder))
        folder.publish_files(self.output, done)
        return summary

    def into_table(self, spark: SparkContext, aside: Aside, summary: Summary) -> Summary:
        span = self.span
        units = cut_evenly(span.partitions, span.first, span.until, spark.defaultParallelism)
        if not is_local(str(spark.master)):
            aside.wait(lambda: refuse_without_arrow(spark))
        place = self.stage / "table"
        session = SparkSession(spark)
        with Progress(sys.stderr, time.monotonic) as progress:
            lines = aside.wait(
                lambda: write_table(session, units, self.reader, place),
                lambda: progress.show(reached(self.stage, units)),
            )
        refused = folder.publish_table(self.output, place)
        return summary.plus(lines, 0, refused, 0)

    def through_driver(self, spark: SparkContext, aside: Aside, summary: Summary) -> Summary:
        span, reader = self.span, self.reader

        def job(slices: list[feed.Slice]) -> list[Any]:
            tasks = spark.parallelize(slices, len(slices))
            return tasks.map(partial(feed.fetch, reader=reader)).collect()

        whole = feed.Slice(span.partitions, span.first, span.until)
        pacing = Pacing(read_speed(self.settings.speed), time.monotonic, time.sleep)
        taken = feed.Taken(reader.selection, self._sink(), pacing)
        with Progress(sys.stderr, time.monotonic) as progress:
            try:
                for fetched in feed.merged(
                    whole, span.window, spark.defaultParallelism, job, aside
                ):
                    taken.take(fetched.messages)
                    progress.show((fetched.until - span.first) / (span.until - span.first))
                taken.sink.close()
            except BrokenPipeError:
                logger.debug("whoever read the lines wanted no more")
        return summary.plus(taken.lines, taken.size, taken.refused, taken.findings)

    def _sink(self) -> Sink:
        if _is_piped(self.settings):
            return Standard(1, self.settings.prefix)
        folder.write_in_place(self.output)
        return HostFiles(self.order, self.output)


def _is_piped(settings: ReplaySettings) -> bool:
    return str(settings.output) == "-"


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
