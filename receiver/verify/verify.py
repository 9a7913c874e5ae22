"""The wiring of a verification: a batch Spark job that compares received files with the stream, up to the offsets."""

import asyncio
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from pyspark import SparkContext

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.moment import read_moment
from broker.app.selection import Selection
from broker.client import bucket
from broker.client.connection import Connection, Denied, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from receiver.replay.again import Reader
from receiver.replay.aside import Aside, beside, part_done
from receiver.replay.attempts import reached
from receiver.replay.plan import Span, Wanted, survey
from receiver.replay.progress import Progress
from receiver.replay.units import Unit, cut_evenly
from receiver.spark.scratch import scratch_folder
from receiver.spark.session import is_local, spark_context
from receiver.verify.examination import examine
from receiver.verify.outcome import Examined, Failed, Order
from receiver.verify.report import Report
from receiver.verify.settings import VerifySettings
from receiver.zones import named_zone

__all__ = ["examined", "verify"]


@dataclass(frozen=True, slots=True)
class _Task:
    span: Span
    offsets: dict[int, int]

    def units(self, cores: int) -> list[Unit]:
        """Return what tasks compare, each partition up to its own offset."""
        span = self.span
        units = cut_evenly(tuple(self.offsets), span.first, span.until, cores)
        bounded = [
            Unit(u.partition, u.first, self.offsets[u.partition], u.slot, u.slots) for u in units
        ]
        return [unit for unit in bounded if unit.first < unit.until]


def verify(settings: VerifySettings) -> Report:
    """Compare and return what was found; raises OperatorError kinds, click.UsageError. Changes nothing anywhere."""
    output = settings.output.absolute()
    if not output.is_dir():
        raise ConfigurationError(f"there is no folder {output}; give the receiver's --output")
    task = asyncio.run(_prepare(settings))
    unclaimed = tuple(sorted(set(task.span.partitions) - set(task.offsets)))
    order = Order(
        output,
        settings.state.absolute(),
        _reader(settings),
        _keeps(settings),
        settings.path_template,
        settings.time_zone,
    )
    if not task.units(1):
        return Report((), unclaimed)
    with (
        spark_context(
            settings.master,
            app_name="logreceiver verify",
            conf=settings.spark,
            executor_python=settings.executor_python,
        ) as spark,
        beside() as aside,
    ):
        outcomes = examined(spark, aside, task.units(spark.defaultParallelism), order)
    done = []
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise OperatorError(f"could not compare: {outcome.detail}")
        done.append(outcome)
    return Report(tuple(done), unclaimed)


def examined(
    spark: SparkContext, aside: Aside, units: list[Unit], order: Order
) -> list[Examined | Failed]:
    """Have tasks compare units, and show how far they are; raises OperatorError when Spark gives up."""
    with (
        scratch_folder() as folder,
        Progress(sys.stderr, time.monotonic) as progress,
    ):
        if not is_local(str(spark.master)):
            tasks = spark.parallelize(units, len(units)).map(partial(examine, order=order))
            return aside.wait(tasks.collect, lambda: progress.show(part_done(spark)))
        order = replace(order, progress=folder)
        tasks = spark.parallelize(units, len(units)).map(partial(examine, order=order))
        return aside.wait(tasks.collect, lambda: progress.show(reached(folder, units)))


def _reader(settings: VerifySettings) -> Reader:
    access = settings.access.absolute(Path.cwd())
    return Reader(settings.server, access, Selection(settings.host))


def _keeps(settings: VerifySettings) -> bool:
    return any(bool(getattr(settings, name)) for name in ("keep", "keep_age", "keep_bytes"))


async def _prepare(settings: VerifySettings) -> _Task:
    # the offsets first: what they cover is in the files by now, and stays there
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    try:
        since = read_moment(settings.since, now, named_zone(settings.time_zone))
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from None
    numbers = None if "all" in settings.partition else tuple(map(int, settings.partition))
    connection = Connection(settings.server, "logreceiver verify", access=settings.access)
    try:
        await connection.once()
        span = await survey(Wanted(settings.server, numbers, since), settings.access, 1)
        created = (await connection.api(f"STREAM.INFO.{STREAM}"))["created"]
        offsets = {
            number: offset.next
            for number in span.partitions
            if (offset := await _offset(connection, number, created)) is not None
        }
    except Denied as error:
        raise OperatorError(error.description) from None
    except Rejected as error:
        raise OperatorError(
            f"the broker has no logship stream and buckets ({error}); run `logbroker apply`"
        ) from None
    finally:
        await connection.close()
    return _Task(span, offsets)


async def _offset(connection: Connection, partition: int, created: str) -> Offset | None:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    if entry is None:
        return None
    try:
        offset = Offset.decode(entry.value)
    except UnreadableOffset as error:
        raise ConfigurationError(f"partition {partition}: {error}") from None
    if offset.stream_created != created:
        raise ConfigurationError(
            f"partition {partition}: its files come from the stream of {offset.stream_created}, this one is of "
            f"{created}: there is nothing to compare them with"
        )
    return offset
