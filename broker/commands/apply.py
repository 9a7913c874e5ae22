"""`logbroker apply`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import click

from broker.app import consent, program
from broker.app.exits import Exit, OperatorError
from broker.app.options import given, settings_options
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.apply import carry_out, look, refuse
from broker.provision.cautions import cautions
from broker.provision.difference import describe, describe_left
from broker.provision.plan import plan
from broker.provision.steps import Plan
from broker.provision.weighing import weigh
from broker.settings import APPLY_FIELDS, BrokerSettings

__all__ = ["EXIT_CODE", "apply", "connected", "ended_as", "propose"]

Done = TypeVar("Done")

EXIT_CODE = click.option(
    "--exit-code",
    is_flag=True,
    help="With --dry-run: end with 0 where nothing would be done, with 1 where something would, with 2 where nobody can say.",
)
"""The option of every command that shows differences."""
logger = logging.getLogger(__name__)


class _NotCompared(OperatorError):
    """What is there could not be learnt; 2, as diff(1) ends then."""

    code = Exit.USAGE


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@EXIT_CODE
@consent.YES
@settings_options(BrokerSettings, APPLY_FIELDS)
def apply(dry_run: bool, exit_code: bool, yes: bool, **options: Any) -> int:
    """Set up stream, buckets and consumers on a running broker; a second time changes nothing."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    for words in cautions(settings.topology()):
        logger.warning("%s", words)
    work = connected(settings, lambda c: _apply(c, settings, dry_run=dry_run, yes=yes))
    return ended_as(work, dry_run=dry_run, exit_code=exit_code)


async def _apply(
    connection: Connection, settings: BrokerSettings, *, dry_run: bool, yes: bool
) -> Plan:
    made = plan(settings.topology(), await look(connection, settings.topology()))
    await propose(connection, made, dry_run=dry_run, yes=yes)
    return made


def ended_as(work: Coroutine[Any, Any, Plan], *, dry_run: bool, exit_code: bool) -> Exit:
    """Run what makes a plan, and carries it out but in a dry run; return how that ends the program."""
    if not exit_code:
        asyncio.run(work)
        return Exit.DONE
    if not dry_run:
        work.close()
        raise click.UsageError("--exit-code goes with --dry-run")
    try:
        return Exit.FAILED if asyncio.run(work).steps else Exit.DONE
    except OperatorError as error:
        if error.code is Exit.FAILED:
            raise _NotCompared(str(error)) from None
        raise


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
