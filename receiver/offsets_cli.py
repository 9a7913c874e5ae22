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
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, partitions_in
from receiver.settings import ASKING, ReceiverSettings

__all__ = ["COMMANDS", "offsets"]

COMMANDS = ("offsets", "show", "set", "reset")

Answer = TypeVar("Answer")

_FIELDS = ASKING | {"partition"}
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
    from receiver.telling import offsets_view as view

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


def _settings(options: dict[str, Any]) -> ReceiverSettings:
    settings = given(ReceiverSettings, options)
    log_to_stderr(settings)
    return settings


def _move(settings: ReceiverSettings, to: str, *, yes: bool, force: bool) -> None:
    if not settings.partition:
        raise click.UsageError("--partition is required: a number from 0, several, or all")
    from receiver.telling import by_hand

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
    entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    count = partitions_in(entry.value if entry else None)
    if count is None:
        raise ConfigurationError(
            "the broker does not say how many partitions there are; run `logbroker apply`"
        )
    return settings.wanted(count) if settings.partition else tuple(range(count))
