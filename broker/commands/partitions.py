"""`logbroker partitions`."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click

from broker.app import consent, program
from broker.app.options import given, settings_options
from broker.client.connection import Connection
from broker.commands.asking import asking
from broker.inspect.ask import streams_of, subjects_in
from broker.provision.apply import carry_out, refuse
from broker.provision.difference import describe
from broker.provision.plan import Actual, plan_partitions
from broker.provision.repartition import look_at_partitions
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.wire.streams import MAX_PARTITIONS
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject, partition_of

__all__ = ["partitions"]


@click.command()
@click.argument("number", metavar="N", type=click.IntRange(1, MAX_PARTITIONS))
@consent.YES
@settings_options(BrokerSettings, STATUS_FIELDS)
def partitions(number: int, yes: bool, **options: Any) -> None:
    """Spread hosts over N partitions, while shippers and receivers run: no line is lost, or comes twice, or out of order."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    asking(settings, "partitions", lambda connection: _change(connection, number, yes=yes))


async def _change(connection: Connection, number: int, *, yes: bool) -> None:
    actual = await look_at_partitions(connection)
    made = plan_partitions(number, actual)
    refuse(made)
    if not made.steps:
        click.echo(f"hosts are spread over {_counted(number)} already; nothing to do")
        return
    click.echo(
        _intent(
            number,
            actual.number,
            _hosts(await subjects_in(connection, await streams_of(connection))),
        )
    )
    click.echo(describe(made))
    if not yes:
        consent.ask(f"Spread hosts over {_counted(number)}?")
    await carry_out(connection, made)
    click.echo("\n".join(_afterwards(number, actual)))


def _hosts(found: Iterable[str]) -> frozenset[str]:
    hosts = set()
    for subject in found:
        with suppress(InvalidSubject, InvalidHost):
            hosts.add(Subject.parse(subject).host)
    return frozenset(hosts)


def _intent(number: int, before: int | None, hosts: frozenset[str]) -> str:
    if before is None:
        return f"no number of partitions is set; hosts will be spread over {_counted(number)}"
    moved = sum(partition_of(host, before) != partition_of(host, number) for host in hosts)
    return (
        f"hosts are spread over {_counted(before)}, and will be over {number}: of {len(hosts)} hosts {moved} "
        "move to another partition"
    )


def _afterwards(number: int, before: Actual) -> list[str]:
    found = [
        f"hosts are spread over {_counted(number)} now: shippers that run go over within 10 seconds of their next lines",
        f"where the settings of this broker say --partitions, make it {number}, or leave it out",
    ]
    if before.existing < number:
        found.append(f"new are {_named(before.existing, number)}: see that receivers run for them")
    if number < before.existing:
        found.append(
            f"{_named(number, before.existing)} keep what they hold: leave their receivers until `logbroker status` shows "
            "nothing pending there"
        )
    if before.streams[before.names[0]].get("sources"):
        found.append("other sites whose lines come in here need the same number: run it there, too")
    return found


def _counted(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"


def _named(first: int, until: int) -> str:
    return f"p{first}" if until - first == 1 else f"p{first} to p{until - 1}"
