"""`logbroker purge` and `logbroker rm`: show which messages would be removed, then remove them."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click

from broker.commands import shared
from broker.inspect.message import format_message, read_facts, serialize_message
from broker.inspect.reader import get_message
from broker.inspect.streams import choose_stream
from broker.retention.decide import Purge
from broker.retention.purge import plan_purges, run_purges
from broker.retention.snapshots import complete_snapshots
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand, write_bytes
from nats_logship.app.text import format_count, format_names, printable
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import format_moment
from nats_logship.client.connection import Connection
from nats_logship.wire.stream_message import StreamMessage

_MOST_SHOWN = 100  # subjects of a stream
_ERASE_PATIENCE = 60.0  # seconds; nats-server rewrites a block of the stream
logger = logging.getLogger(__name__)


@click.command(cls=SectionedCommand)
@shared.HOSTS
@shared.PARTITIONS
@shared.moment_option("--before", "Only messages that were stored before")
@click.option("--everything", is_flag=True, help="All messages, or all that the others select.")
@shared.with_mode
@shared.with_settings()
def purge(
    settings: BrokerSettings,
    mode: shared.Mode,
    hosts: tuple[str, ...],
    only: tuple[int, ...],
    before: Moment | None,
    everything: bool,
) -> None:
    """Remove messages by host, partition or time; shows them and asks first."""
    if not (hosts or only or before is not None or everything):
        raise click.UsageError("give --host, --partition, --before or --everything")
    purges = shared.read_from_broker(
        settings, "purge", lambda connection: plan_purges(connection, hosts, only, before)
    )
    total = sum(one.messages for one in purges)
    removed: int | None = None
    if not mode.as_json:
        _show_purges(purges, total, before)
    if purges and mode.confirm(f"Remove {format_count(total, 'message')}?"):
        removed = shared.run_on_broker(
            settings, "purge", lambda connection: run_purges(connection, purges)
        )
        mode.echo(f"removed {format_count(removed, 'message')}")
        logger.info("removed %s on request", format_count(removed, "message"))
    if mode.as_json:
        shared.print_json({"matching": list(map(asdict, purges)), "removed": removed})


def _show_purges(purges: Sequence[Purge], total: int, before: Moment | None) -> None:
    stored = f", stored before {format_moment(before)}" if isinstance(before, datetime) else ""
    click.echo(format_count(total, "message", "match") + stored)
    if needed_by := dict.fromkeys(who for one in purges for who in one.needed_by):
        names = ", ".join(needed_by)
        click.echo(
            f"NOT RECEIVED by {names}; receivers report the missing lines as gaps (after a restore "
            "a partition counts as received once its receiver has committed again)"
        )
    for one in purges:
        messages = format_count(one.messages, "message")
        subjects = format_names(one.filters, _MOST_SHOWN) or "all subjects"
        text = f"{one.stream}: {messages} below sequence {one.until}, on {subjects}"
        click.echo(printable(text))


@click.command(cls=SectionedCommand)
@click.argument("sequence", type=click.IntRange(1, 2**63))
@shared.STREAM
@shared.with_mode
@shared.with_settings()
def rm(settings: BrokerSettings, mode: shared.Mode, sequence: int, stream: str | None) -> None:
    """Remove one message and overwrite it on disk; shows it and asks first."""

    async def read(connection: Connection) -> tuple[str, StreamMessage]:
        name = await choose_stream(connection, stream)
        return name, await get_message(connection, name, sequence)

    name, message = shared.read_from_broker(settings, "rm", read)
    if not mode.as_json:
        write_bytes(format_message(message) + b"\n")

    async def remove(connection: Connection) -> None:
        # the shipper's positions are among its headers: without them it would ship its lines again
        await complete_snapshots(connection, name, sequence + 1)
        call, body = f"STREAM.MSG.DELETE.{name}", {"seq": sequence, "no_erase": False}
        await connection.api(call, body, patience=_ERASE_PATIENCE)

    if is_agreed := mode.confirm(f"Remove message {sequence} for good?"):
        shared.run_on_broker(settings, "rm", remove)
        subject = read_facts(message).subject
        host = subject.host if subject else message.subject
        mode.echo(printable(f"removed message {sequence} of {host}"))
        logger.info("removed message %d of %s on request", sequence, message.subject)
    if mode.as_json:
        shared.print_json({"message": serialize_message(message), "removed": is_agreed})
