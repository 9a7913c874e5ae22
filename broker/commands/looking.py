"""`logbroker status`."""

import asyncio
import json
from typing import Any

import click

from broker.connecting.connection import Connection
from broker.looking.status import Status, ask, table
from broker.running import program
from broker.running.options import given, settings_options
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["status"]


@click.command()
@settings_options(BrokerSettings, STATUS_FIELDS)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def status(as_json: bool, **options: Any) -> None:
    """Show what the stream holds and how far each receiver has come."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    found = asyncio.run(_ask(settings))
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else table(found))


async def _ask(settings: BrokerSettings) -> Status:
    connection = Connection(settings.server, "logbroker status", access=settings.access)
    try:
        return await ask(connection)
    finally:
        await connection.close()
