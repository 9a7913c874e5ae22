"""`logbroker status`, `check`, `hosts` and `top`: the state of the broker. They change nothing."""

import asyncio
import json
import sys
from contextlib import nullcontext
from datetime import timedelta
from functools import partial

import click

from broker.commands import shared
from broker.inspect import checks
from broker.inspect.collect import collect_status, observe
from broker.inspect.hosts import HOST_HEAD, SavedPositions, collect_hosts
from broker.inspect.status import PARTITION_HEAD, BrokerStatus, describe, format_partition
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.text import format_count
from nats_logship.client.connection import Connection

_SHORTEST = timedelta(seconds=0.2)


@click.command(cls=SectionedCommand)
@shared.JSON
@shared.with_settings()
def status(settings: BrokerSettings, as_json: bool) -> None:
    """Show the streams, and how far behind the receiver of each partition is."""
    found = shared.read_from_broker(settings, "status", collect_status)
    if as_json:
        shared.print_json(found.document())
        return
    from nats_logship.app.table import plain, show, table

    show(*(f"{name:<8}{text}" for name, text in describe(found)), "")
    left = (0, len(PARTITION_HEAD) - 1)
    rows = list(map(format_partition, found.partitions))
    show(table(PARTITION_HEAD, rows, left, less=("epoch", "offset", "committed")))
    for one in checks.judge(checks.CHECKS, found):
        if one.grade is not checks.Grade.OK:
            show(plain(f"{one.grade.name}: {one.text}", "yellow"))


@click.command(cls=SectionedCommand)
@click.argument("names", nargs=-1, type=click.Choice(checks.CHECKS), metavar="[CHECK]...")
@shared.JSON
@shared.with_settings()
def check(settings: BrokerSettings, names: tuple[str, ...], as_json: bool) -> int:
    """Check the broker for a monitoring system.

    The exit code is 0 for OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN, as for a plugin of Nagios. CHECK
    is connection, stream, space, receivers, certificates or sites; all of them by default.
    """
    wanted = tuple(dict.fromkeys(names)) or checks.CHECKS

    async def ask() -> tuple[BrokerStatus | None, str]:
        connection = Connection(settings.server, "logbroker check", access=settings.access)
        try:
            return await observe(connection)
        finally:
            await connection.close()

    try:
        status, trouble = asyncio.run(ask())
        results = checks.judge(wanted, status, trouble)
    except OperatorError as error:  # a monitoring system reads stdout alone
        results = [checks.CheckResult(wanted[0], checks.Grade.UNKNOWN, str(error))]
    worst = checks.find_worst(results)
    document = {"status": worst.name, "findings": [one.document() for one in results]}
    shared.show(document, checks.format_nagios(results), as_json=as_json)
    return worst


@click.command(cls=SectionedCommand)
@shared.HOSTS
@shared.option(
    "--silent", "DURATION", "Only hosts that have sent nothing for this long.", type=shared.DURATION
)
@shared.JSON
@shared.with_settings()
def hosts(
    settings: BrokerSettings, hosts: tuple[str, ...], silent: timedelta | None, as_json: bool
) -> None:
    """List the hosts: messages in the streams, last message, last file."""
    collect = partial(collect_hosts, saved=SavedPositions())
    found = shared.read_from_broker(settings, "hosts", collect)
    least, wanted = silent.total_seconds() if silent else 0.0, LineSelection(hosts=hosts)
    chosen = [one for one in found if wanted.wants_host(one.host) and one.silent_seconds >= least]
    if as_json:
        shared.print_json([one.document() for one in chosen])
        return
    from nats_logship.app.table import show, table

    rows = [one.row() for one in chosen]
    left = 0, len(HOST_HEAD) - 1
    show(table(HOST_HEAD, rows, left, less=("part", "messages", "last seen")))
    pauses = dict.fromkeys(one.paused for one in chosen if one.paused)
    show("", f"{len(chosen)} of {format_count(len(found), 'host')}", *pauses)


@click.command(cls=SectionedCommand)
@shared.option(
    "--interval",
    "DURATION",
    "Time between two views.  [default: 2s]",
    default="2s",
    type=shared.DURATION,
)
@shared.option("--count", "N", "End after N views.", type=click.IntRange(min=1))
@shared.JSON
@shared.with_settings()
def top(settings: BrokerSettings, interval: timedelta, count: int | None, as_json: bool) -> None:
    """Watch rates by partition and host, and how far receivers are behind."""
    if interval < _SHORTEST:
        raise click.UsageError(f"--interval must be at least {_SHORTEST.total_seconds()}s")
    from rich.live import Live

    from broker.inspect.top import TopView, draw, watch
    from nats_logship.app.table import show, stdout

    is_live = sys.stdout.isatty() and not as_json
    live = Live(console=stdout(), screen=True, auto_refresh=False) if is_live else None

    async def show_view(view: TopView) -> None:
        if live:
            live.update(draw(view), refresh=True)
        elif as_json:
            click.echo(json.dumps(view.document()))
        else:
            show(draw(view), "")

    with live or nullcontext():
        views = partial(watch, interval=interval.total_seconds())
        shared.show_each(settings, "top", views, show_view, count)
