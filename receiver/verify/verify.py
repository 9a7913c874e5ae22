"""The wiring of a verification: a batch Spark job that compares received files with the stream, up to the offsets."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.moment import read_moment
from broker.app.selection import Selection
from broker.client import bucket
from broker.client.connection import Connection, Denied, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from receiver.replay.progress import run_tasks
from receiver.replay.reading import Reader
from receiver.replay.survey import Span, Wanted, hosts_that_moved, survey
from receiver.replay.tasks import Unit, cut_evenly
from receiver.spark.scratch import scratch_folder
from receiver.spark.session import spark_context
from receiver.verify.examination import Order, examine
from receiver.verify.report import Report
from receiver.verify.settings import VerifySettings
from receiver.zones import named_zone

__all__ = ["verify"]


@dataclass(frozen=True, slots=True)
class _Task:
    span: Span
    offsets: dict[int, int]
    moved: frozenset[str]

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
    if not task.units(1):
        return Report((), unclaimed, task.moved)
    with (
        scratch_folder() as progress,
        spark_context(
            settings.master,
            app_name="logreceiver verify",
            conf=settings.spark,
            executor_python=settings.executor_python,
        ) as spark,
    ):
        order = Order(
            output,
            progress,
            settings.state.absolute(),
            _reader(settings),
            _keeps(settings),
            settings.path_template,
            settings.time_zone,
            task.moved,
        )
        units = task.units(spark.defaultParallelism)
        examined = run_tasks(spark, units, partial(examine, order=order), progress)
    return Report(tuple(examined), unclaimed, task.moved)


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
        span = await survey(Wanted(settings.server, numbers, since), settings.access)
        created = (await connection.api(f"STREAM.INFO.{STREAM}"))["created"]
        moved = await hosts_that_moved(connection)
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
    return _Task(span, offsets, moved)


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
