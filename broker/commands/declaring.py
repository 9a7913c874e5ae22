"""`logbroker apply`."""

import asyncio
from typing import Any

import click

from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.declaring.difference import describe
from broker.declaring.plan import Plan, plan
from broker.declaring.provision import carry_out, look, refuse
from broker.exits import OperatorError
from broker.running import program
from broker.running.options import given, settings_options
from broker.settings import APPLY_FIELDS, BrokerSettings

__all__ = ["apply"]


@click.command()
@settings_options(BrokerSettings, APPLY_FIELDS)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def apply(dry_run: bool, **options: Any) -> None:
    """Set up stream, buckets and consumers on a running broker; a second time changes nothing."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    asyncio.run(_apply(settings, dry_run=dry_run))


async def _apply(settings: BrokerSettings, *, dry_run: bool) -> None:
    connection = Connection(settings.server, "logbroker apply", access=settings.access)
    try:
        await connection.once()
        made: Plan = plan(settings.topology(), await look(connection, settings.topology()))
        refuse(made)
        click.echo(describe(made))
        if not dry_run:
            await carry_out(connection, made)
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer as it should: {error}"
        ) from None
    finally:
        await connection.close()
