"""`logbroker status`, `check`, `hosts`, `top` and `get`."""

import asyncio
import json
import sys
from contextlib import aclosing, nullcontext
from datetime import timedelta
from typing import Any

import click

from broker.app import program
from broker.app.command_line import given, settings_options
from broker.app.exits import OperatorError
from broker.app.selection import LineSelection
from broker.client.connection import Connection
from broker.commands.shared import (
    HOSTS,
    JSON,
    LENGTH,
    STREAM,
    asking,
    looking,
    now,
    print_json,
    with_settings,
)
from broker.inspect import ask
from broker.inspect import hosts as hosts_view
from broker.inspect.checks import (
    Check,
    CheckResult,
    Grade,
    Observed,
    check_document,
    judge,
    judge_status,
    overall,
    to_nagios,
)
from broker.inspect.message import StoredMessage, message_document, message_text
from broker.inspect.status import PARTITION_HEAD, facts, partition_row
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["check", "get", "hosts", "status", "top"]

_SHORTEST = timedelta(seconds=0.2)


@click.command()
@JSON
@with_settings()
def status(settings: BrokerSettings, as_json: bool) -> None:
    """Show what the streams hold and how far behind the receiver of each partition is."""
    found = looking(settings, "status", ask.full_status)
    if as_json:
        print_json(found.document())
        return
    from broker.app.table import plain, show, table

    show(*(f"{name:<8}{text}" for name, text in facts(found)), "")
    left = (0, len(PARTITION_HEAD) - 1)
    show(table(PARTITION_HEAD, list(map(partition_row, found.partitions)), left))
    for finding in judge_status(found):
        show(plain(f"{finding.grade.name}: {finding.text}", "yellow"))


@click.command()
@click.argument(
    "checks", nargs=-1, type=click.Choice([one.value for one in Check]), metavar="[CHECK]..."
)
@JSON
@settings_options(BrokerSettings, STATUS_FIELDS)
def check(checks: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Check the broker for a monitoring system: exit code 0 for OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    CHECK is connection, stream, space, receivers or certificates; all of them unless some are named.
    """
    wanted = [Check(one) for one in dict.fromkeys(checks)] or list(Check)
    try:
        settings = given(BrokerSettings, options)
        program.log_to_stderr(settings)
        findings = judge(wanted, asyncio.run(_observe(settings, wanted)))
    except OperatorError as error:  # a monitoring system is told of it as of everything else
        findings = [CheckResult(wanted[0], Grade.UNKNOWN, str(error))]
    if as_json:
        print_json(check_document(findings))
    else:
        click.echo(to_nagios(findings))
    return overall(findings)


async def _observe(settings: BrokerSettings, wanted: list[Check]) -> Observed:
    connection = Connection(settings.server, "logbroker check", access=settings.access)
    try:
        return await ask.observe(connection, wanted, now())
    finally:
        await connection.close()


@click.command()
@HOSTS
@click.option(
    "--silent", metavar="TIME", type=LENGTH, help="Only hosts without a message for so long."
)
@click.option(
    "--sort",
    type=click.Choice(list(hosts_view.ORDERS)),
    default="name",
    show_default=True,
    help="The largest first, or the longest silent.",
)
@JSON
@with_settings()
def hosts(
    settings: BrokerSettings,
    hosts: tuple[str, ...],
    silent: timedelta | None,
    sort: str,
    as_json: bool,
) -> None:
    """Show the hosts that ship: how many messages the streams hold of each, and when the last one came."""
    found = looking(settings, "hosts", hosts_view.ask_hosts)
    least, wanted = silent.total_seconds() if silent else 0.0, LineSelection(hosts=hosts)
    chosen = [
        one
        for one in sorted(found, key=hosts_view.ORDERS[sort])
        if wanted.wants_host(one.host) and one.silent_seconds >= least
    ]
    if as_json:
        print_json([one.document() for one in chosen])
        return
    from broker.app.table import show, table

    rows = [one.row() for one in chosen]
    show(table(hosts_view.HEAD, rows, left=(0, len(hosts_view.HEAD) - 1)))
    pauses = dict.fromkeys(one.paused for one in chosen if one.paused)
    show("", f"{len(chosen)} of {len(found)} hosts", *pauses)


@click.command()
@click.option(
    "--interval",
    default="2s",
    type=LENGTH,
    metavar="TIME",
    show_default=True,
    help="How often it is drawn.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many views.")
@JSON
@with_settings()
def top(settings: BrokerSettings, interval: timedelta, count: int | None, as_json: bool) -> None:
    """Watch what moves: rates in and out, what is behind, how the streams fill, and which hosts send or are silent."""
    if interval < _SHORTEST:
        raise click.UsageError(f"--interval is at least {_SHORTEST.total_seconds()}s")
    from rich.live import Live

    from broker.app.table import show, stdout
    from broker.inspect.top import draw, watch

    is_live = sys.stdout.isatty() and not as_json
    live = Live(console=stdout(), screen=True, auto_refresh=False) if is_live else None
    left = count or sys.maxsize

    async def watched(connection: Connection) -> None:
        nonlocal left
        async with aclosing(watch(connection, interval.total_seconds())) as views:
            async for view in views:
                if live:
                    live.update(draw(view, live.console.height), refresh=True)
                elif as_json:
                    click.echo(json.dumps(view.document()))
                else:
                    show(draw(view), "")
                if not (left := left - 1):
                    return

    with live or nullcontext():
        asking(settings, "top", watched)


@click.command()
@click.argument("sequence", metavar="[SEQUENCE]", required=False, type=click.IntRange(1, 2**63))
@click.option("--host", metavar="HOST", help="The last message of this host.")
@STREAM
@click.option("--raw", is_flag=True, help="Only the payload, byte for byte as it is stored.")
@JSON
@with_settings()
def get(
    settings: BrokerSettings,
    sequence: int | None,
    host: str | None,
    stream: str | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Show one message of a stream, or the last one: where its lines came from, its headers, and the lines."""
    if (raw and as_json) or (host and sequence):
        raise click.UsageError("give one of --raw and --json, and one of SEQUENCE and --host")

    async def one(connection: Connection) -> StoredMessage:
        if host:
            names = [stream] if stream else await ask.streams_of(connection)
            return await ask.last_of_host(connection, names, host)
        name = await ask.stream_named(connection, stream)
        return await ask.get_message(connection, name, sequence)

    found = looking(settings, "get", one)
    if as_json:
        print_json(message_document(found))
    else:
        sys.stdout.buffer.write(found.payload if raw else message_text(found))
