"""The wiring of a replay: a batch Spark job over a span of the stream, and where its lines go.

stream ──▶ tasks (hosts of a partition each) ──▶ folders of attempts ──▶ --output     files, at full speed
stream ──▶ tasks (a slice of sequences each) ──▶ driver ──▶ --output -, or files      merged, at any --speed
"""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime

import click

from broker.app.exits import OperatorError
from broker.app.moment import Moment, read_moment
from receiver.replay import feed, folder
from receiver.replay.aside import beside
from receiver.replay.job import Job, is_piped
from receiver.replay.pace import read_speed
from receiver.replay.plan import Wanted, survey
from receiver.replay.settings import ReplaySettings
from receiver.replay.summary import Summary, as_json, as_text
from receiver.spark.session import spark_context
from receiver.zones import named_zone

__all__ = ["Summary", "as_json", "as_text", "replay"]

logger = logging.getLogger(__name__)


def replay(settings: ReplaySettings) -> Summary:
    """Replay what the settings ask for and return what was done; raises OperatorError kinds, click.UsageError.

    Killed at any moment it leaves a folder that says so, and that the same command begins anew.
    """
    os.umask(0o027)
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
    stage = output if is_piped(settings) else folder.prepare(output)
    if span.is_empty:
        logger.warning("nothing was stored in that time: nothing to replay")
    else:
        summary = _run(Job(settings, span, output, stage), summary)
    if not is_piped(settings):
        folder.finish(output, asdict(summary))
    return summary


def _run(job: Job, summary: Summary) -> Summary:
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
        if is_piped(settings) or read_speed(settings.speed):
            summary = job.through_driver(spark, aside, summary)
        else:
            summary = job.into_files(spark, aside, summary)
    now_first = asyncio.run(survey(_wanted(settings), settings.access, feed.LIMIT)).earliest
    if now_first > job.span.first:
        gone = f"sequences {job.span.first} to {min(now_first, job.span.until) - 1}"
        logger.warning("%s were removed by retention meanwhile; lines of them may be absent", gone)
        return replace(summary, gone=gone)
    return summary


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
