"""`logbroker purge` and `logbroker rm`."""

import logging
import sys

import click

from broker.app.command_line import YES, ask
from broker.app.exits import OperatorError
from broker.app.units import ACCEPTED, Moment
from broker.app.untrusted import printable
from broker.client.connection import Connection
from broker.commands.shared import (
    DRY_RUN,
    HOSTS,
    MOMENT,
    PARTITIONS,
    STREAM,
    asking,
    looking,
    with_settings,
)
from broker.inspect.ask import get_message, stream_named
from broker.inspect.message import StoredMessage, message_text
from broker.retention.purging import Choice, Purge, choose, consequences, erase
from broker.retention.purging import purge as take_out
from broker.settings import BrokerSettings

__all__ = ["purge", "rm"]

_SHOWN = 20
_SEQUENCE = click.IntRange(1, 2**63)
logger = logging.getLogger(__name__)


@click.command()
@HOSTS
@PARTITIONS
@click.option(
    "--before", metavar="WHEN", type=MOMENT, help=f"Only what was stored before: {ACCEPTED}."
)
@click.option("--received", is_flag=True, help="Only what all receivers have.")
@click.option(
    "--everything", is_flag=True, help="All that the stream holds, unless another option says less."
)
@DRY_RUN
@YES
@with_settings()
def purge(
    settings: BrokerSettings,
    hosts: tuple[str, ...],
    only: tuple[int, ...],
    before: Moment | None,
    received: bool,
    everything: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove messages of the stream, after showing which: by host, partition, time, or what was received."""
    if not (hosts or only or before is not None or received or everything):
        raise click.UsageError(
            "say what is to go: --host, --partition, --before, --received, or --everything"
        )
    until, moment = (before, None) if isinstance(before, int) else (None, before)
    choice = Choice(hosts, only, until, moment, received)
    chosen = looking(settings, "purge", lambda connection: choose(connection, choice))
    unreceived = sum(part.unreceived for one in chosen for part in one.parts)
    _show(chosen, unreceived)
    if dry_run or not chosen:
        return
    if not yes:
        ask("Remove that?")

    async def taken_out(connection: Connection) -> int:
        return sum([await take_out(connection, one) for one in chosen])

    gone = asking(settings, "purge", taken_out)
    click.echo(f"removed {gone} messages")
    logger.info("removed %d messages on request; no receiver had %d of them", gone, unreceived)


def _show(chosen: list[Purge], unreceived: int) -> None:
    """Print what would go, what of it no receiver has, and each part, the largest first."""
    parts = sorted(
        ((one.stream, part) for one in chosen for part in one.parts),
        key=lambda one: -one[1].messages,
    )
    if not parts:
        click.echo("nothing would be removed: no message in the stream matches")
        return
    click.echo(f"{sum(part.messages for _, part in parts)} messages")
    if unreceived:
        click.echo(f"NOT RECEIVED of that: {unreceived}; receivers will name them as missing")
    for stream, part in parts[:_SHOWN]:
        text = f"{part.messages} messages below sequence {part.until} of {stream}"
        click.echo(printable(f"  {part.filter}: {text}"))
    if len(parts) > _SHOWN:
        click.echo(f"  and {len(parts) - _SHOWN} more")


@click.command()
@click.option("--seq", type=_SEQUENCE, required=True, metavar="SEQ", help="The message's sequence.")
@STREAM
@click.option("--host", metavar="HOST", help="Whose it must be, or nothing is done.")
@DRY_RUN
@YES
@with_settings()
def rm(
    settings: BrokerSettings,
    seq: int,
    stream: str | None,
    host: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove one message and overwrite it in the store, after showing it: one or more lines."""

    async def look_at(connection: Connection) -> tuple[str, StoredMessage, str]:
        name = await stream_named(connection, stream)
        message = await get_message(connection, name, seq)
        return name, message, await consequences(connection, name, message)

    name, message, words = looking(settings, "rm", look_at)
    if host is not None and message.host != host:
        raise OperatorError(f"message {seq} is of host {message.host}; nothing was removed")
    sys.stdout.buffer.write(message_text(message) + b"\n")
    sys.stdout.flush()
    click.echo(words)
    if dry_run:
        return
    if not yes:
        ask(f"Remove message {seq} for good?")
    asking(settings, "rm", lambda connection: erase(connection, name, message))
    click.echo(printable(f"removed message {seq} of {message.host}"))
    logger.info("removed message %d of %s, on request", seq, message.name)
