"""The Spark jobs of a replay: into files, or through the driver in the order of storage."""

import logging
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from broker.app.exits import OperatorError
from broker.app.selection import Selection
from receiver.replay import feed, files, folder
from receiver.replay.again import Reader
from receiver.replay.aside import Aside
from receiver.replay.attempts import reached
from receiver.replay.files import Failed, Order, Written
from receiver.replay.pace import read_speed
from receiver.replay.pacing import Pacing
from receiver.replay.plan import Span
from receiver.replay.progress import Progress
from receiver.replay.settings import ReplaySettings
from receiver.replay.sink import HostFiles, Sink, Standard
from receiver.replay.summary import Summary
from receiver.replay.units import cut_evenly
from receiver.storage.layout import Layout

__all__ = ["Job", "is_piped"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """What is replayed of the stream, and into which folder; `stage` is where attempts are written before all is."""

    settings: ReplaySettings
    span: Span
    output: Path
    stage: Path

    @property
    def reader(self) -> Reader:
        """How tasks reach the stream."""
        settings = self.settings
        return Reader(
            settings.server,
            settings.access.absolute(Path.cwd()),
            Selection(settings.host, settings.file),
        )

    @property
    def order(self) -> Order:
        """What tasks that write files are told."""
        settings = self.settings
        return Order(
            self.stage,
            self.reader,
            int(settings.rotate_size),  # a type of pydantic's, which executors lack
            settings.rotate_every,
            settings.time_zone,
            settings.compress,
            settings.path_template,
        )

    def into_files(self, spark: SparkContext, aside: Aside, summary: Summary) -> Summary:
        """Write the files that a receiver would have written; raises OperatorError, OSError."""
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
        folder.publish_files(self.output, done, Layout(self.settings.path_template))
        return summary

    def through_driver(self, spark: SparkContext, aside: Aside, summary: Summary) -> Summary:
        """Bring all lines in their order to standard output or to files, at any speed; raises OperatorError, OSError."""
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
        if is_piped(self.settings):
            return Standard(1, self.settings.prefix)
        folder.write_in_place(self.output, Layout(self.settings.path_template))
        return HostFiles(self.order, self.output)


def is_piped(settings: ReplaySettings) -> bool:
    """Whether lines go to standard output."""
    return str(settings.output) == "-"
