"""`logbroker pause` and `logbroker resume`."""

import getpass
import json
import math
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

import click
from pydantic import ValidationError

from broker.app.exits import OperatorError
from broker.app.untrusted import printable
from broker.client.bucket import Conflict
from broker.client.config import change_pauses
from broker.client.connection import Connection, Rejected
from broker.commands.shared import JSON, asking, length, now, with_settings
from broker.settings import BrokerSettings
from broker.wire.pause import ALL_HOSTS, Pause, UnreadablePauses, decode_pauses
from broker.wire.streams import CONFIG_BUCKET

__all__ = ["pause", "resume"]

_GLOBS = click.argument("globs", metavar="[HOST_GLOB]...", nargs=-1)
Pauses = tuple[Pause, ...]


@click.command()
@_GLOBS
@click.option(
    "--for", "how_long", metavar="TIME", callback=length, help="End it by itself after so long."
)
@click.option("--reason", default="", metavar="TEXT", help="Why; shown wherever the pause is.")
@JSON
@with_settings()
def pause(
    settings: BrokerSettings,
    globs: tuple[str, ...],
    how_long: timedelta | None,
    reason: str,
    as_json: bool,
) -> None:
    """Have shippers publish nothing, within two seconds: those of all hosts, or of hosts that match.

    Their lines wait in their files. It lasts until `logbroker resume`, or as long as --for says.
    """
    until = None if how_long is None else _end(how_long)
    made = [_made(glob, until, reason) for glob in globs or (ALL_HOSTS,)]
    names = {one.hosts for one in made}

    def change(value: bytes) -> Pauses:
        return (*(one for one in _in_force(value) if one.hosts not in names), *made)

    _print(_changed(settings, "pause", change), as_json=as_json)
    if not as_json:
        click.echo("shippers stop within two seconds; other clients do not")


@click.command()
@_GLOBS
@JSON
@with_settings()
def resume(settings: BrokerSettings, globs: tuple[str, ...], as_json: bool) -> None:
    """End all pauses, or those whose hosts match: shippers go on where they were."""

    def change(value: bytes) -> Pauses:
        return _left(_in_force(value), globs) if globs else ()

    _print(_changed(settings, "resume", change), as_json=as_json)


def _end(how_long: timedelta) -> datetime:
    if how_long <= timedelta(0):
        raise click.BadParameter("a pause lasts longer than nothing", param_hint="--for")
    try:
        return datetime.fromtimestamp(math.ceil((now() + how_long).timestamp()), UTC)
    except (OverflowError, ValueError):
        raise click.BadParameter(
            "that is longer than a date can be; without --for it lasts until `logbroker resume`",
            param_hint="--for",
        ) from None


def _made(glob: str, until: datetime | None, reason: str) -> Pause:
    try:
        return Pause(hosts=glob, until=until, reason=reason, by=_operator())
    except ValidationError as error:
        if error.errors()[0]["loc"] == ("reason",):
            raise click.BadParameter("at most 500 letters, please", param_hint="--reason") from None
        raise click.BadParameter(
            f"{glob!r} is no glob of host names, such as 'web*'", param_hint="HOST_GLOB"
        ) from None


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"[:200]


def _in_force(value: bytes) -> Pauses:
    try:
        pauses = decode_pauses(value)
    except UnreadablePauses as error:
        raise OperatorError(
            f"the pauses at the broker cannot be read: {error}; `logbroker resume` without a glob removes them"
        ) from None
    return tuple(one for one in pauses if not one.is_over(now()))


def _left(pauses: Pauses, globs: tuple[str, ...]) -> Pauses:
    names = [one.hosts for one in pauses]
    for glob in globs:
        if names and not any(_is_meant(name, glob) for name in names):
            raise OperatorError(
                f"{glob} is not paused by that name; paused are {', '.join(names)}: name one of these"
            )
    return tuple(one for one in pauses if not any(_is_meant(one.hosts, glob) for glob in globs))


def _is_meant(name: str, glob: str) -> bool:
    return name == glob or fnmatchcase(name, glob)


def _changed(settings: BrokerSettings, command: str, change: Callable[[bytes], Pauses]) -> Pauses:
    async def changed(connection: Connection) -> Pauses:
        try:
            return await change_pauses(connection, change)
        except Conflict:
            raise OperatorError("somebody else changed the pauses meanwhile; try again") from None
        except Rejected as error:
            if not error.is_nobody:
                raise
            raise OperatorError(
                f"bucket {CONFIG_BUCKET} at {connection.servers} takes no entry: set it up with `logbroker apply`; "
                "where it is a copy of another site's, run this there"
            ) from None

    return asking(settings, command, changed)


def _print(pauses: Pauses, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in pauses], indent=2))
    elif pauses:
        click.echo("\n".join(printable(f"{one.hosts}: {one}") for one in pauses))
    else:
        click.echo("nothing is paused")
