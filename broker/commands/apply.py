"""`logbroker apply`."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from broker.app import consent, program
from broker.app.exits import OperatorError
from broker.app.options import SectionedCommand, given, settings_options
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import carry_out, look, refuse
from broker.provision.cautions import cautions
from broker.provision.difference import as_json, describe
from broker.provision.losses import losses_of
from broker.provision.plan import plan
from broker.provision.steps import Plan
from broker.settings import APPLY_FIELDS, BrokerSettings

__all__ = ["DRY_RUN", "JSON", "apply", "connected", "propose"]

Done = TypeVar("Done")

DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
JSON = click.option("--json", "in_json", is_flag=True, help="Show the plan as JSON, for programs.")
logger = logging.getLogger(__name__)


@click.command(cls=SectionedCommand)
@DRY_RUN
@JSON
@consent.YES
@settings_options(BrokerSettings, APPLY_FIELDS)
def apply(dry_run: bool, in_json: bool, yes: bool, **options: Any) -> None:
    """Set up streams, buckets and consumers on a running broker; a second time changes nothing."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    for words in cautions(settings.topology()):
        logger.warning("%s", words)

    async def work(connection: Connection) -> None:
        desired = settings.topology()
        made = plan(desired, await look(connection, desired))
        await propose(connection, made, dry_run=dry_run, in_json=in_json, yes=yes)

    asyncio.run(connected(settings, work))


async def propose(
    connection: Connection, made: Plan, *, dry_run: bool, in_json: bool, yes: bool
) -> None:
    """Show a plan, ask where it deletes something, and carry it out."""
    refuse(made)
    losses = await losses_of(connection, made)
    shown = json.dumps(as_json(made, losses), indent=2) if in_json else describe(made, losses)
    click.echo(shown)
    if dry_run:
        return
    if losses and not yes:
        consent.ask("This deletes what is marked with an exclamation mark. Do it?")
    await carry_out(connection, made)


async def connected(
    settings: BrokerSettings, work: Callable[[Connection], Awaitable[Done]]
) -> Done:
    """Do something with a running broker; raises `OperatorError` when there is none, or it does not answer well."""
    connection = Connection(settings.server, "logbroker", access=settings.access)
    try:
        await connection.once()
        return await work(connection)
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer as it should: {error}"
        ) from None
    finally:
        await connection.close()
