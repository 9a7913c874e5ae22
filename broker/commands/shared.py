"""What the commands share: common options, settings from options, and a connection."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.settings import STATUS_FIELDS, BrokerSettings
from nats_logship.app import program
from nats_logship.app.command_line import (
    YES_OPTION,
    confirm,
    settings_from_options,
    settings_options,
    write_bytes,
)
from nats_logship.app.text import printable
from nats_logship.app.units import ACCEPTED, parse_duration, parse_moment
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.wire.expressions import bounded_expression
from nats_logship.wire.streams import MAX_PARTITIONS

Value = TypeVar("Value")


def option(name: str, metavar: str, help_text: str, **more: Any) -> Callable[..., Any]:
    """Return an option with a value; `several` names the parameter of a repeatable option."""
    if several := more.pop("several", None):
        return click.option(name, several, metavar=metavar, help=help_text, multiple=True, **more)
    return click.option(name, metavar=metavar, help=help_text, **more)


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)  # noqa: TID251 - the clock of the commands


def make_type(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return a type of options from a function that raises ValueError."""

    def convert(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


DURATION = make_type(parse_duration)
"""A length of time, such as `12h`."""


def _check_expression(text: str) -> str:
    if text:
        bounded_expression(text)
    return text


REGEX = make_type(_check_expression)
"""A regular expression of RE2."""


def moment_option(name: str, help_text: str) -> Callable[..., Any]:
    """Return an option that takes a time, in UTC if it names no zone, or a sequence."""
    parse = make_type(lambda text: parse_moment(text, now()))
    return option(name, "WHEN", f"{help_text} (in UTC): {ACCEPTED}.", type=parse)


def parse_partitions(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[int, ...] | None:
    """Return the partitions in `3`, `0,3,5` or `all` (an empty tuple); None without a value."""
    words = [word.strip() for text in texts for word in text.split(",")]
    if not words or words == ["all"]:
        return () if words else None
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) < MAX_PARTITIONS):
            raise click.BadParameter(f"{word!r} is neither the number of a partition nor all")
    return tuple(sorted(set(map(int, words))))


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
STREAM = option("--stream", "NAME", "The stream, if the broker has several.")
HOSTS = option("--host", "GLOB", "Only hosts that match; repeatable.", several="hosts")
PARTITIONS = option(
    "--partition",
    "N",
    "Only these partitions, such as 3 or 0,3,5; repeatable.",
    several="only",
    callback=lambda *given: parse_partitions(*given) or (),
)


@dataclass(frozen=True, slots=True)
class Mode:
    """How a command that changes something was called."""

    dry_run: bool
    as_json: bool
    yes: bool

    def echo(self, text: str) -> None:
        """Print text for people: to stderr if stdout is JSON."""
        click.echo(text, err=self.as_json)

    def confirm(self, question: str) -> bool:
        """Return whether to make the change: never in a dry run.

        Ask a person first, unless --yes is given or the question is empty.
        """
        if question and not (self.dry_run or self.yes):
            confirm(question)
        return not self.dry_run


def with_mode(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --dry-run, --json and --yes, as its argument `mode`."""

    @wraps(command)
    def run(dry_run: bool, as_json: bool, yes: bool, **values: Any) -> Any:
        mode = Mode(dry_run=dry_run, as_json=as_json, yes=yes)
        return command(mode=mode, **values)

    return _DRY_RUN(JSON(YES_OPTION(run)))


def with_settings(
    fields: Collection[str] = STATUS_FIELDS,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command the options of these settings.

    The command gets the settings as its first argument, after logging to stderr is set up.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**values: Any) -> Any:
            own = {name: values.pop(name) for name in {*fields, "config"} & values.keys()}
            settings = settings_from_options(BrokerSettings, own)
            program.log_to_stderr(settings)
            return command(settings, **values)

        return settings_options(BrokerSettings, fields)(run)

    return decorate


def run_on_broker(
    settings: BrokerSettings, command: str, work: Callable[[Connection], Awaitable[Value]]
) -> Value:
    """Connect, return what `work` returns, and disconnect.

    Raises `OperatorError` if the broker is away or refuses.
    """
    return ask_broker(settings, f"logbroker {command}", work)


def read_from_broker(
    settings: BrokerSettings, command: str, read: Callable[[Connection], Awaitable[Value]]
) -> Value:
    """Do the same with `read`, which changes nothing: repeat it while a cluster has no leader."""
    return ask_broker(settings, f"logbroker {command}", read, ELECTION)


def show_each(
    settings: BrokerSettings,
    command: str,
    items: Callable[[Connection], AsyncGenerator[Value, None]],
    show: Callable[[Value], Awaitable[None]],
    count: int | None = None,
) -> None:
    """Show the items that a generator yields, as they come; at most `count` of them."""

    async def run(connection: Connection) -> None:
        left = count or sys.maxsize
        async with aclosing(items(connection)) as found:
            async for one in found:
                await show(one)
                if not (left := left - 1):
                    return

    run_on_broker(settings, command, run)


async def write_to_stdout(data: bytes) -> None:
    """Write in a thread, so that a slow reader of stdout does not block the connection."""
    await asyncio.to_thread(write_bytes, data)


def print_json(document: object) -> None:
    """Print a document for programs."""
    click.echo(json.dumps(document, indent=2))


def show(document: object, *lines: str, as_json: bool) -> None:
    """Print a document for programs, or lines for people."""
    if as_json:
        print_json(document)
    for line in () if as_json else lines:
        click.echo(printable(line))


def find_store(settings: BrokerSettings) -> Path:
    """Return the broker's directory, absolute; raises click.UsageError if none is set."""
    of_systemd = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if folder := settings.store_dir or of_systemd:
        return Path(folder).absolute()
    raise click.UsageError(
        "--store-dir is required (or LOGBROKER_STORE_DIR, or store_dir in the --config file)"
    )
