"""`logreceiver verify`: compares received files with the stream, partition by partition, as far as their stores have received."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.moment import read_moment
from broker.app.progress import progress
from broker.app.selection import Selection
from broker.client.connection import Connection, Denied, Rejected
from receiver.replay.reading import Reader
from receiver.replay.survey import Span, StreamSpan, Wanted, hosts_that_moved, survey
from receiver.storage.position import Damaged
from receiver.storage.store import Store, path_of
from receiver.verify.examination import Examination, Order
from receiver.verify.received import snapshot
from receiver.verify.report import Report
from receiver.verify.settings import VerifySettings
from receiver.zones import named_zone

__all__ = ["verify"]


@dataclass(frozen=True, slots=True)
class _Found:
    span: Span
    created: dict[str, str]  # by stream
    moved: frozenset[str]


def verify(settings: VerifySettings) -> Report:
    """Compare and return what was found; raises OperatorError kinds, click.UsageError. Changes nothing anywhere."""
    output = settings.output.absolute()
    if not output.is_dir():
        raise ConfigurationError(f"there is no folder {output}; give the receiver's --output")
    found = asyncio.run(_asked(settings))
    try:
        return _compared(settings, found, output)
    except Damaged as error:
        raise OperatorError(str(error)) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; run this as the receiver's user, where its folders are"
        ) from None


def _compared(settings: VerifySettings, found: _Found, output: Path) -> Report:
    reader = Reader(settings.server, settings.access, Selection(settings.host))
    order = Order(output, reader, settings.path_template, settings.time_zone, found.moved)
    with ExitStack() as stack:
        begun = {
            number: examination
            for number in found.span.partitions
            if (examination := _opened(settings, found, order, number, stack)) is not None
        }
        size = found.span.length * len(begun) // len(found.span.streams)
        advance = stack.enter_context(progress("comparing", size))
        examined = tuple(examination.run(advance) for examination in begun.values())
    unclaimed = tuple(sorted(set(found.span.partitions) - set(begun)))
    return Report(examined, unclaimed, found.moved)


def _opened(
    settings: VerifySettings, found: _Found, order: Order, partition: int, stack: ExitStack
) -> Examination | None:
    """Open the store of a partition; None where nothing was received of it into these folders."""
    try:
        store = stack.enter_context(Store(path_of(settings.state.absolute(), partition)))
    except FileNotFoundError:
        return None
    seen = snapshot(store)
    if seen is None:
        return None
    span = _stream_of(found.span, partition)
    if seen.created not in {"", found.created[span.stream]}:
        raise ConfigurationError(
            f"partition {partition}: its files come from the stream of {seen.created}, this one is of "
            f"{found.created[span.stream]}: there is nothing to compare them with"
        )
    return Examination(order, partition, store, span)


def _stream_of(span: Span, partition: int) -> StreamSpan:
    return span.streams[partition % len(span.streams)]


async def _asked(settings: VerifySettings) -> _Found:
    now = datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
    try:
        since = read_moment(settings.since, now, named_zone(settings.time_zone))
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from None
    numbers = None if "all" in settings.partition else tuple(map(int, settings.partition))
    connection = Connection(settings.server, "logreceiver verify", access=settings.access)
    try:
        await connection.once()
        span = await survey(connection, Wanted(numbers, since))
        created = {
            one.stream: (await connection.api(f"STREAM.INFO.{one.stream}"))["created"]
            for one in span.streams
        }
        return _Found(span, created, await hosts_that_moved(connection, created))
    except Denied as error:
        raise OperatorError(error.description) from None
    except Rejected as error:
        raise OperatorError(
            f"the broker has no logship stream and buckets ({error}); run `logbroker apply`"
        ) from None
    finally:
        await connection.close()
