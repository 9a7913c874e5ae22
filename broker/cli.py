"""The command line of logbroker: options in, exit code out. Decides nothing."""

import asyncio
import json
import logging
import sys
from typing import Any

import click

from broker import program
from broker.connection import Connection, ConnectionLost, Rejected
from broker.difference import describe
from broker.exits import OperatorError
from broker.options import given, settings_options, spread
from broker.plan import Plan, plan
from broker.provision import carry_out, look, refuse
from broker.service import serve
from broker.settings import APPLY_FIELDS, RUN_FIELDS, STATUS_FIELDS, BrokerSettings
from broker.status import Status, ask, table

__all__ = ["main"]


@click.group(name="logbroker")
def group() -> None:
    """Run and administer the broker: a real nats-server, configured and set up for logs."""


@group.command()
@settings_options(BrokerSettings, RUN_FIELDS)
def run(**options: Any) -> None:
    """Run nats-server on a folder until SIGTERM; says when it is ready."""
    settings = given(BrokerSettings, options)
    if settings.store_dir is None:
        raise click.UsageError(
            "--store-dir is required (or LOGBROKER_STORE_DIR, or store_dir in the --config file)"
        )
    program.log_to_stderr(settings)
    logging.getLogger("nats-server").setLevel(
        logging.DEBUG if settings.log_level == "debug" else logging.WARNING
    )
    asyncio.run(serve(settings, settings.store_dir.absolute()))


@group.command()
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


@group.command()
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


def main() -> None:
    """Run logbroker."""
    program.run(group, spread(sys.argv[1:], {"--server"}, group.commands))
