"""`logbroker status`, `check`, `hosts` and `get`."""

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any

import click

from broker.app import program
from broker.app.command_line import given, settings_options
from broker.app.exits import OperatorError
from broker.app.selection import LineSelection
from broker.client.connection import Connection
from broker.commands.shared import HOSTS, JSON, length, looking, now, with_settings
from broker.inspect import ask
from broker.inspect import hosts as hosts_view
from broker.inspect.ask import get_message, last_of_host
from broker.inspect.checks import (
    Check,
    CheckResult,
    Grade,
    Observed,
    judge,
    judge_status,
    overall,
    to_json,
    to_nagios,
)
from broker.inspect.message import StoredMessage, message_json, message_text
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["check", "get", "hosts", "status"]

_LAST = "last"


@click.command()
@JSON
@with_settings()
def status(settings: BrokerSettings, as_json: bool) -> None:
    """Show what the streams hold and how far behind the receiver of each partition is."""
    found = looking(settings, "status", ask.full_status)
    if as_json:
        click.echo(json.dumps(found.document(), indent=2))
        return
    from broker.app.table import plain, show, table
    from broker.inspect.status import PARTITION_HEAD, facts, partition_rows

    show(*(f"{name:<8}{text}" for name, text in facts(found)), "")
    left = (0, len(PARTITION_HEAD) - 1)
    show(table(PARTITION_HEAD, list(partition_rows(found)), left))
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
    click.echo(to_json(findings) if as_json else to_nagios(findings))
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
    "--silent",
    metavar="TIME",
    callback=length,
    help="Only hosts without a message for so long.",
)
@click.option(
    "--sort",
    type=click.Choice([order.value for order in hosts_view.HostOrder]),
    default=hosts_view.HostOrder.NAME.value,
    show_default=True,
    help="The largest first, or the longest silent.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@JSON
@with_settings()
def hosts(
    settings: BrokerSettings,
    hosts: tuple[str, ...],
    silent: timedelta | None,
    sort: str,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the hosts that ship: how many messages the streams hold of each, and when the last one came."""
    found = looking(settings, "hosts", hosts_view.ask_hosts)
    least = silent.total_seconds() if silent else 0.0
    chosen = [
        one
        for one in hosts_view.sort_hosts(found, hosts_view.HostOrder(sort))
        if LineSelection(hosts=hosts).wants_host(one.host) and one.silent_seconds >= least
    ][:limit]
    if as_json:
        click.echo(json.dumps([one.document() for one in chosen], indent=2))
        return
    from broker.app.table import show, table

    head, rows = hosts_view.HEAD, [one.row() for one in chosen]
    show(table(head, rows, left=(0, len(head) - 1), most=limit or 500))
    show("", f"{len(chosen)} of {len(found)} hosts", *hosts_view.pause_notes(chosen))


def _sequence(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    if text is None or text == _LAST:
        return None
    digits = text.removeprefix("seq:")
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 2**63):
        raise click.BadParameter(f"{text!r} is not the sequence of a message, nor {_LAST!r}")
    return int(digits)


@click.command()
@click.argument("sequence", metavar="[SEQUENCE]", required=False, callback=_sequence)
@click.option("--host", metavar="HOST", help="The last message of this host.")
@click.option("--stream", metavar="NAME", help="The stream, where lines are in several.")
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
    if raw and as_json:
        raise click.UsageError("--raw and --json are two forms; give one of them")
    if host and sequence:
        raise click.UsageError("a sequence and --host name two messages; give one of them")

    async def one(connection: Connection) -> StoredMessage:
        if host:
            names = [stream] if stream else await ask.streams_of(connection)
            return await last_of_host(connection, names, host)
        return await get_message(connection, await ask.stream_named(connection, stream), sequence)

    found = looking(settings, "get", one)
    if as_json:
        click.echo(message_json(found))
    else:
        sys.stdout.buffer.write(found.payload if raw else message_text(found))
