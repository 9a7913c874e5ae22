"""`logbroker status`, `hosts` and `get`."""

import json
import sys
from datetime import timedelta
from typing import Any

import click

from broker.app import program
from broker.app.options import given, settings_options
from broker.app.selection import Selection
from broker.commands.asking import looking
from broker.commands.typed import length
from broker.looking import hosts as asked_hosts
from broker.looking import hosts_view, one
from broker.looking.hosts_view import Order
from broker.looking.status import ask
from broker.looking.status_view import table
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["get", "hosts", "status"]

_LAST = "last"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@settings_options(BrokerSettings, STATUS_FIELDS)
def status(as_json: bool, **options: Any) -> None:
    """Show what the stream holds and how far each receiver has come."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    found = looking(settings, "status", ask)
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else table(found))


@click.command()
@click.option(
    "--host",
    multiple=True,
    metavar="GLOB",
    help="Only hosts that match; may be given several times.",
)
@click.option(
    "--silent",
    metavar="TIME",
    callback=length,
    help="Only hosts of which nothing has come for so long.",
)
@click.option(
    "--sort",
    type=click.Choice([order.value for order in Order]),
    default=Order.NAME.value,
    show_default=True,
    help="The largest first, or the longest silent.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option(
    "--exact",
    is_flag=True,
    help=f"Count lines and bytes of all messages, not only of the newest {asked_hosts.COUNTED:,}.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@settings_options(BrokerSettings, STATUS_FIELDS)
def hosts(
    host: tuple[str, ...],
    silent: timedelta | None,
    sort: str,
    limit: int | None,
    exact: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show who ships: how much the stream holds of each host, and when it was last heard of."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    found = looking(
        settings, "hosts", lambda connection: asked_hosts.ask(connection, count_all=exact)
    )
    least = silent.total_seconds() if silent else 0.0
    wanted = [
        one_host
        for one_host in hosts_view.sorted_by(found.hosts, Order(sort))
        if Selection(hosts=host).wants_host(one_host.host)
        and one_host.silent_for(found.now) >= least
    ][:limit]
    if as_json:
        click.echo(hosts_view.as_json(wanted, found.now))
    else:
        click.echo(hosts_view.as_table(wanted, found.now, len(found.hosts)))


def _sequence(context: click.Context, parameter: click.Parameter, text: str) -> int | None:
    if text == _LAST:
        return None
    digits = text.removeprefix("seq:")
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 2**63):
        raise click.BadParameter(f"{text!r} is not the sequence of a message, nor {_LAST!r}")
    return int(digits)


@click.command()
@click.argument("sequence", metavar="SEQUENCE", callback=_sequence)
@click.option("--raw", is_flag=True, help="Only the payload, byte for byte as it is stored.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@settings_options(BrokerSettings, STATUS_FIELDS)
def get(sequence: int | None, raw: bool, as_json: bool, **options: Any) -> None:
    """Show one message of the stream, or the last one: where its lines came from, its headers, and the lines."""
    if raw and as_json:
        raise click.UsageError("--raw and --json are two forms; give one of them")
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    found = looking(settings, "get", lambda connection: one.fetch(connection, sequence))
    if as_json:
        click.echo(one.as_json(found))
    else:
        sys.stdout.buffer.write(found.payload if raw else one.as_text(found))
