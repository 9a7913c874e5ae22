"""`logbroker check`."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from broker.app import program
from broker.app.exits import OperatorError
from broker.app.options import given, settings_options
from broker.app.whole import write_whole
from broker.client.connection import Connection
from broker.looking.check_view import Form, render
from broker.looking.checking import look
from broker.looking.checks import Seen, judge
from broker.looking.findings import Check, Finding, Grade, Limit, Verdict, overall
from broker.looking.thresholds import Thresholds
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.settings_looking import CHECK_FIELDS

__all__ = ["check"]

_PATIENCE = 10.0  # seconds


@click.command()
@click.argument(
    "checks", nargs=-1, type=click.Choice([one.value for one in Check]), metavar="[CHECK]..."
)
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Form]),
    default=Form.NAGIOS.value,
    show_default=True,
    help="For whom it is.",
)
@click.option(
    "--outfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it there, whole or not at all.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=_PATIENCE,
    metavar="SECONDS",
    show_default=True,
    help="For all of it.",
)
@settings_options(BrokerSettings, STATUS_FIELDS | CHECK_FIELDS)
def check(
    checks: tuple[str, ...], form: str, outfile: Path | None, timeout: float, **options: Any
) -> int:
    """Check the broker for a monitoring system: exit code 0 for OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    CHECK is connection, stream, lag, store, replicas, hosts, certificates or room; all of them unless some are named.
    """
    wanted = [Check(one) for one in dict.fromkeys(checks)] or list(Check)
    try:
        settings = given(BrokerSettings, options)
        program.log_to_stderr(settings)
        seen = asyncio.run(_look(settings, wanted, timeout))
        verdicts = judge(wanted, seen, _thresholds(settings))
    except OperatorError as error:  # a monitoring system hears of it as of everything else
        verdicts = [Verdict(wanted[0], (Finding(Grade.UNKNOWN, str(error)),))]
    if checks:
        verdicts = [_asked_for(verdict) for verdict in verdicts]
    return _tell(render(verdicts, Form(form)), overall(v.grade for v in verdicts), outfile)


def _asked_for(verdict: Verdict) -> Verdict:
    if not verdict.absent:
        return verdict
    return Verdict(verdict.check, (Finding(Grade.UNKNOWN, verdict.absent),))


def _tell(text: str, grade: Grade, outfile: Path | None) -> Grade:
    if outfile is None:
        click.echo(text)
        return grade
    try:
        write_whole(outfile, f"{text}\n", 0o644)
    except OperatorError as error:
        click.echo(f"{Grade.UNKNOWN.name} logbroker {error}")
        return Grade.UNKNOWN
    return grade


async def _look(settings: BrokerSettings, wanted: list[Check], patience: float) -> Seen:
    connection = Connection(settings.server, "logbroker check", access=settings.access)
    try:
        return await look(connection, wanted, patience, datetime.now(UTC))  # noqa: TID251 - the shell's clock
    finally:
        await connection.close()


def _thresholds(settings: BrokerSettings) -> Thresholds:
    s = settings
    return Thresholds(
        connect=_limit(s.connect_warn, s.connect_critical),
        rtt=_limit(s.rtt_warn, s.rtt_critical),
        lag=Limit(s.lag_warn, s.lag_critical),
        age=_limit(s.age_warn, s.age_critical),
        store=Limit(s.store_warn, s.store_critical),
        silent=_limit(s.silent_warn, s.silent_critical),
        rate=Limit(s.rate_warn, s.rate_critical),
        validity=_limit(s.validity_warn, s.validity_critical),
        peer_expect=s.peer_expect,
        peer_lag=s.peer_lag_critical,
        peer_seen=s.peer_seen_critical.total_seconds(),
    )


def _limit(warn: timedelta | None, critical: timedelta | None) -> Limit:
    return Limit(
        None if warn is None else warn.total_seconds(),
        None if critical is None else critical.total_seconds(),
    )
