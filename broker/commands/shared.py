"""What the commands share: settings from options, options that several commands have, and one connection to a broker."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, TypeVar

import click

from broker.app import program
from broker.app.exits import OperatorError
from broker.app.options import given, settings_options
from broker.app.units import Moment, parse_duration, read_moment
from broker.client.connection import ELECTION, Connection, ConnectionLost, Rejected, until_answered
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = [
    "DRY_RUN",
    "HOSTS",
    "JSON",
    "asking",
    "length",
    "looking",
    "now",
    "place",
    "with_settings",
]

Found = TypeVar("Found")
_NO_STREAM = 10059

JSON = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
HOSTS = click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="GLOB",
    help="Only hosts that match; may be given several times.",
)


def with_settings(
    fields: Collection[str] = STATUS_FIELDS,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command the options of these settings.

    The command gets the settings as its first argument; from then on messages are logged to stderr.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def called(**values: Any) -> Any:
            own = {name: values.pop(name) for name in {*fields, "config"} & values.keys()}
            settings = given(BrokerSettings, own)
            program.log_to_stderr(settings)
            return command(settings, **values)

        return settings_options(BrokerSettings, fields)(called)

    return decorate


def asking(
    settings: BrokerSettings, command: str, ask: Callable[[Connection], Awaitable[Found]]
) -> Found:
    """Connect, return what `ask` returns, and disconnect; raises `OperatorError` for a broker that is away or refuses."""
    return asyncio.run(_asked(settings, command, ask))


def looking(
    settings: BrokerSettings, command: str, look: Callable[[Connection], Awaitable[Found]]
) -> Found:
    """Do the same with what changes nothing: it is asked again while a cluster has no leader."""
    return asking(settings, command, lambda c: until_answered(c, look, ELECTION))


async def _asked(
    settings: BrokerSettings, command: str, ask: Callable[[Connection], Awaitable[Found]]
) -> Found:
    connection = Connection(settings.server, f"logbroker {command}", access=settings.access)
    try:
        await connection.once()
        return await ask(connection)
    except Rejected as error:
        hint = "; set it up with `logbroker apply`" if error.error == _NO_STREAM else ""
        raise OperatorError(
            f"the broker at {connection.servers} refuses: {error.description}{hint}"
        ) from None
    except ConnectionLost as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer: {error}"
        ) from None
    finally:
        await connection.close()


def length(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> timedelta | None:
    """Return a length of time, such as `12h`; None where none was given."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def place(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Moment | None:
    """Return a time or a sequence; None where none was given."""
    try:
        return None if text is None else read_moment(text, now())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)  # noqa: TID251 - the clock of the commands
