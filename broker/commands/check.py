"""`logbroker check`."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import click

from broker.app import program
from broker.app.durations import parse_duration
from broker.app.exits import OperatorError
from broker.app.options import given, settings_options
from broker.client.connection import Connection
from broker.inspect.checks import (
    Check,
    Finding,
    Grade,
    Limit,
    Limits,
    Observed,
    judge,
    overall,
    to_json,
    to_nagios,
)
from broker.inspect.observe import observe
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["check"]

_PATIENCE = 10.0  # seconds


def _seconds(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, str]
) -> tuple[float, ...]:
    try:
        return tuple(parse_duration(text).total_seconds() for text in texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument(
    "checks", nargs=-1, type=click.Choice([one.value for one in Check]), metavar="[CHECK]..."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=_PATIENCE,
    metavar="SECONDS",
    show_default=True,
    help="For all of it.",
)
@click.option(
    "--age",
    nargs=2,
    default=("10m", "1h"),
    callback=_seconds,
    metavar="WARN CRIT",
    show_default=True,
    help="receivers: how old the oldest message may be; four fifths of max_age is critical in any case.",
)
@click.option(
    "--space",
    nargs=2,
    type=click.FloatRange(0, 100),
    default=(75, 90),
    metavar="WARN CRIT",
    show_default=True,
    help="space: how many percent of it may be used.",
)
@settings_options(BrokerSettings, STATUS_FIELDS)
def check(
    checks: tuple[str, ...],
    as_json: bool,
    timeout: float,
    age: tuple[float, float],
    space: tuple[float, float],
    **options: Any,
) -> int:
    """Check the broker for a monitoring system: exit code 0 for OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    CHECK is connection, stream, space, receivers or certificates; all of them unless some are named.
    """
    wanted = [Check(one) for one in dict.fromkeys(checks)] or list(Check)
    limits = Limits(age=Limit(*age), space=Limit(*space))
    try:
        settings = given(BrokerSettings, options)
        program.log_to_stderr(settings)
        findings = judge(wanted, asyncio.run(_observe(settings, wanted, timeout)), limits)
    except OperatorError as error:  # a monitoring system hears of it as of everything else
        findings = [Finding(wanted[0], Grade.UNKNOWN, str(error))]
    click.echo(to_json(findings) if as_json else to_nagios(findings))
    return overall(findings)


async def _observe(settings: BrokerSettings, wanted: list[Check], patience: float) -> Observed:
    connection = Connection(settings.server, "logbroker check", access=settings.access)
    try:
        return await observe(connection, wanted, patience, datetime.now(UTC))  # noqa: TID251 - the shell's clock
    finally:
        await connection.close()
