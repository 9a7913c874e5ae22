"""The commands `logreceiver offsets`: options in, questions asked, exit codes out; decides nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.options import given, settings_options
from broker.app.program import log_to_stderr
from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Denied, Rejected
from broker.client.patience import ELECTION, until_answered
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    offset_key,
    partitions_in,
)
from receiver.settings import ASKING, ReceiverSettings
from receiver.storage.folders import make_folder
from receiver.storage.lock import Locked, partition_lock
from receiver.storage.site import Site

__all__ = ["COMMANDS", "offsets"]

COMMANDS = ("offsets", "show", "set", "reset", "adopt")

Answer = TypeVar("Answer")

_FIELDS = ASKING | {"partition"}
_LOCK_PATIENCE = 1.0  # seconds
_YES = click.option("--yes", is_flag=True, help="Do it without asking.")
_FORCE = click.option(
    "--force", is_flag=True, help="Also where a receiver is running, which this ends."
)


@click.group()
def offsets() -> None:
    """Show, and move by hand, from where on partitions are received."""


@offsets.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--history", is_flag=True, help="Also the older revisions that the bucket holds.")
@settings_options(ReceiverSettings, _FIELDS)
def show(as_json: bool, history: bool, **options: Any) -> None:
    """Show each partition's offset, its owner, and what waits behind it."""
    settings = _settings(options)
    from receiver.status import offsets_view as view

    async def gather(connection: Connection) -> list[view.PartitionOffset]:
        return await view.gather(connection, await _wanted(connection, settings))

    partitions = _asked(settings, lambda c: until_answered(c, gather, ELECTION))
    write = view.as_json if as_json else view.as_table
    click.echo(write(partitions, with_history=history))


@offsets.command("set")
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="A sequence, earliest, latest, or a time such as 2026-11-20T10:00+01:00 (UTC without a zone).",
)
@_YES
@_FORCE
@settings_options(ReceiverSettings, _FIELDS)
def set_(to: str, yes: bool, force: bool, **options: Any) -> None:
    """Move the offset of partitions; their files stay as they are, but for a batch that was never committed."""
    _move(_settings(options), to, yes=yes, force=force)


@offsets.command()
@_YES
@_FORCE
@settings_options(ReceiverSettings, _FIELDS)
def reset(yes: bool, force: bool, **options: Any) -> None:
    """Begin with all that the stream holds; lines that shippers sent and the files have are not written again."""
    _move(_settings(options), "earliest", yes=yes, force=force)


@offsets.command()
@_YES
@settings_options(ReceiverSettings, _FIELDS | {"output", "state_dir", "path_template"})
def adopt(yes: bool, **options: Any) -> None:
    """Take the files in --output as they are: as all that was received before the offset, whatever the store says.

    For a store (p<N>.db in --state-dir) that is lost, damaged, or does not go with the offset or the files. Lines that
    were written and never committed stay, and may come a second time: it is your word that this is right. No receiver
    may be running there.
    """
    settings = _settings(options)
    _require_partition(settings)
    for site, offset in _asked(
        settings, lambda c: until_answered(c, _adoptable(settings), ELECTION)
    ):
        click.echo(
            f"partition {site.partition}: the files in {site.output} are taken as they are, and it goes on at sequence "
            f"{offset.next}"
        )
        if not yes:
            _ask()
        click.echo(f"partition {site.partition}: {_adopted(site, offset)} files adopted")


def _adoptable(
    settings: ReceiverSettings,
) -> Callable[[Connection], Awaitable[list[tuple[Site, Offset]]]]:
    async def gather(connection: Connection) -> list[tuple[Site, Offset]]:
        count, found = await _count(connection), []
        for number in settings.wanted(count):
            entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(number))
            if entry is None:
                raise ConfigurationError(
                    f"partition {number} has no offset; `logreceiver offsets set --partition {number} --to SEQUENCE` first"
                )
            output, state = settings.output.absolute(), settings.state.absolute()
            site = Site(output, state, number, settings.path_template, count)
            found.append((site, _decoded(entry.value, number)))
        return found

    return gather


def _decoded(value: bytes, partition: int) -> Offset:
    try:
        return Offset.decode(value)
    except UnreadableOffset as error:
        raise ConfigurationError(
            f"partition {partition}: {error}; `logreceiver offsets set` writes one back"
        ) from None


def _adopted(site: Site, offset: Offset) -> int:
    from receiver.consume.offsets import position_of
    from receiver.storage.adopt import adopt as take

    try:
        make_folder(site.state)
        with partition_lock(site.state / f"p{site.partition}.lock", _LOCK_PATIENCE):
            return take(site, position_of(offset))
    except Locked as error:
        raise OperatorError(f"{error}: a receiver is running there; end it first") from None
    except OSError as error:
        raise OperatorError(f"{error.filename or site.output}: {error.strerror}") from None


def _require_partition(settings: ReceiverSettings) -> None:
    if not settings.partition:
        raise click.UsageError("--partition is required: a number from 0, several, or all")


def _settings(options: dict[str, Any]) -> ReceiverSettings:
    settings = given(ReceiverSettings, options)
    log_to_stderr(settings)
    return settings


def _move(settings: ReceiverSettings, to: str, *, yes: bool, force: bool) -> None:
    _require_partition(settings)
    from receiver.status import by_hand

    async def propose(connection: Connection) -> list[by_hand.Move]:
        now = datetime.now(UTC)  # noqa: TID251 - the clock that what is below is given
        sequence = await by_hand.sequence_of(connection, to, now)
        partitions = await _wanted(connection, settings)
        return [await by_hand.propose(connection, number, sequence, now) for number in partitions]

    moves = _asked(settings, lambda c: until_answered(c, propose, ELECTION))
    for move in moves:
        click.echo(f"partition {move.partition}: {move.words}")
        if move.objection and not force:
            raise OperatorError(f"partition {move.partition}: {move.objection}")
    if not yes:
        _ask()

    async def carry_out(connection: Connection) -> None:
        for move in moves:
            await by_hand.carry_out(connection, move)
            click.echo(f"partition {move.partition}: done")

    _asked(settings, carry_out)


def _ask() -> None:
    try:
        agreed = click.confirm("Do it?")
    except click.Abort:
        agreed = False
    if not agreed:
        raise OperatorError("nothing was changed; --yes does it without asking")


def _asked(settings: ReceiverSettings, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Do something with the broker; raises `BrokerAway`, OperatorError when it refuses."""

    async def connected() -> Answer:
        connection = Connection(settings.server, "logreceiver offsets", access=settings.access)
        try:
            await connection.once()
            return await work(connection)
        except Denied as error:
            raise OperatorError(error.description) from None
        except (Rejected, ConnectionLost) as error:
            raise OperatorError(f"the broker refuses: {error}; run `logbroker apply`") from None
        finally:
            await connection.close()

    return asyncio.run(connected())


async def _wanted(connection: Connection, settings: ReceiverSettings) -> tuple[int, ...]:
    count = await _count(connection)
    return settings.wanted(count) if settings.partition else tuple(range(count))


async def _count(connection: Connection) -> int:
    entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    count = partitions_in(entry.value if entry else None)
    if count is None:
        raise ConfigurationError(
            "the broker does not say how many partitions there are; run `logbroker apply`"
        )
    return count
