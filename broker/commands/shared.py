"""What the commands share: settings from options, options that several commands have, and one connection to a broker."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.inspect.matching import check_pattern
from broker.settings import STATUS_FIELDS, BrokerSettings
from nats_logship.app import program
from nats_logship.app.command_line import (
    YES_OPTION,
    confirm,
    settings_from_options,
    settings_options,
)
from nats_logship.app.text import printable
from nats_logship.app.units import ACCEPTED, parse_duration, parse_moment
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.wire.streams import MAX_PARTITIONS

Found = TypeVar("Found")


def option(name: str, metavar: str, help_text: str, **more: Any) -> Callable[..., Any]:
    """Return the option of a value; `several` names the parameter of one that may be given several times."""
    if several := more.pop("several", None):
        return click.option(name, several, metavar=metavar, help=help_text, multiple=True, **more)
    return click.option(name, metavar=metavar, help=help_text, **more)


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)  # noqa: TID251 - the clock of the commands


def read_by(read: Callable[[str], Found]) -> Callable[[str], Found]:
    """Return a type of options whose values are read by a function that raises ValueError."""

    def convert(text: str) -> Found:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


LENGTH = read_by(parse_duration)
"""A length of time, such as `12h`."""
PATTERN = read_by(lambda text: asyncio.run(check_pattern(text)))
"""A regular expression of Python."""


def moment(name: str, help_text: str) -> Callable[..., Any]:
    """Return the option of a time or a sequence."""
    read = read_by(lambda text: parse_moment(text, now()))
    return option(name, "WHEN", f"{help_text}: {ACCEPTED}.", type=read)


def partition_list(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[int, ...] | None:
    """Return numbers of partitions, written as `3`, `0,3,5`, or `all`, which is an empty tuple; None where none was given."""
    words = [word.strip() for text in texts for word in text.split(",")]
    if not words or words == ["all"]:
        return () if words else None
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) < MAX_PARTITIONS):
            raise click.BadParameter(f"{word!r} is not the number of a partition, nor all")
    return tuple(sorted(set(map(int, words))))


JSON = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
STREAM = option("--stream", "NAME", "The stream, where lines are in several.")
HOSTS = option(
    "--host", "GLOB", "Only hosts that match; may be given several times.", several="hosts"
)
PARTITIONS = option(
    "--partition",
    "N",
    "Only these partitions; also as 0,3,5.",
    several="only",
    callback=lambda *given: partition_list(*given) or (),
)


@dataclass(frozen=True, slots=True)
class Mode:
    """How a command that changes something was called."""

    dry_run: bool
    as_json: bool
    yes: bool

    def say(self, text: str) -> None:
        """Tell people something; beside the JSON that programs read."""
        click.echo(text, err=self.as_json)

    def agrees(self, question: str) -> bool:
        """Whether to do what was shown: not in a dry run; asks a person first, unless --yes is given or there is no question."""
        if question and not (self.dry_run or self.yes):
            confirm(question)
        return not self.dry_run


def asks_first(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --dry-run, --json and --yes, all of them as its argument `mode`."""

    @wraps(command)
    def called(dry_run: bool, as_json: bool, yes: bool, **values: Any) -> Any:
        return command(mode=Mode(dry_run, as_json, yes), **values)

    return _DRY_RUN(JSON(YES_OPTION(called)))


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
            settings = settings_from_options(BrokerSettings, own)
            program.log_to_stderr(settings)
            return command(settings, **values)

        return settings_options(BrokerSettings, fields)(called)

    return decorate


def asking(
    settings: BrokerSettings, command: str, work: Callable[[Connection], Awaitable[Found]]
) -> Found:
    """Connect, return what `work` returns, and disconnect; raises `OperatorError` for a broker that is away or refuses."""
    return ask_broker(settings, f"logbroker {command}", work)


def looking(
    settings: BrokerSettings, command: str, look: Callable[[Connection], Awaitable[Found]]
) -> Found:
    """Do the same with what changes nothing: it is asked again while a cluster has no leader."""
    return ask_broker(settings, f"logbroker {command}", look, ELECTION)


def print_json(document: object) -> None:
    """Print a document for programs."""
    click.echo(json.dumps(document, indent=2))


def show(document: object, *lines: str, as_json: bool) -> None:
    """Print a document for programs, or lines for people."""
    if as_json:
        print_json(document)
    for line in () if as_json else lines:
        click.echo(printable(line))


def store_of(settings: BrokerSettings) -> Path:
    """Return the broker's directory, absolute; raises click.UsageError where the settings name none."""
    if settings.store_dir is None:
        raise click.UsageError(
            "--store-dir is required (or LOGBROKER_STORE_DIR, or store_dir in the --config file)"
        )
    return settings.store_dir.absolute()
