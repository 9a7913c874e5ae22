"""`logbroker apply`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import click

from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.declaring.cautions import cautions
from broker.declaring.difference import describe, describe_left
from broker.declaring.plan import plan
from broker.declaring.provision import carry_out, look, refuse
from broker.declaring.steps import Plan
from broker.declaring.weighing import weigh
from broker.exits import OperatorError
from broker.running import consent, program
from broker.running.options import given, settings_options
from broker.settings import APPLY_FIELDS, BrokerSettings

__all__ = ["apply", "connected", "propose"]

logger = logging.getLogger(__name__)


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@consent.YES
@settings_options(BrokerSettings, APPLY_FIELDS)
def apply(dry_run: bool, yes: bool, **options: Any) -> None:
    """Set up stream, buckets and consumers on a running broker; a second time changes nothing."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    for words in cautions(settings.topology()):
        logger.warning("%s", words)
    asyncio.run(connected(settings, lambda c: _apply(c, settings, dry_run=dry_run, yes=yes)))


async def _apply(
    connection: Connection, settings: BrokerSettings, *, dry_run: bool, yes: bool
) -> None:
    made = plan(settings.topology(), await look(connection, settings.topology()))
    await propose(connection, made, dry_run=dry_run, yes=yes)


async def propose(connection: Connection, made: Plan, *, dry_run: bool, yes: bool) -> None:
    """Show a plan, ask where it deletes something, and carry it out."""
    refuse(made)
    losses = await weigh(connection, made)
    click.echo(describe(made, losses))
    if dry_run:
        if made.left:
            click.echo(describe_left(made.left))
        return
    if losses and not yes:
        consent.ask("This deletes what is marked with an exclamation mark. Do it?")
    await carry_out(connection, made)


async def connected(
    settings: BrokerSettings, work: Callable[[Connection], Awaitable[None]]
) -> None:
    """Do something with a running broker; raises `OperatorError` when there is none, or it does not answer well."""
    connection = Connection(settings.server, "logbroker", access=settings.access)
    try:
        await connection.once()
        await work(connection)
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer as it should: {error}"
        ) from None
    finally:
        await connection.close()
