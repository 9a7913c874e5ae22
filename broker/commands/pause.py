"""`logbroker pause` and `logbroker resume`."""

import getpass
import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import click
from pydantic import ValidationError

from broker.app.exits import OperatorError
from broker.app.untrusted import printable
from broker.client.bucket import Conflict
from broker.client.config import change_pauses
from broker.client.connection import Connection, Rejected
from broker.commands.shared import JSON, LENGTH, asking, now, print_json, with_settings
from broker.settings import BrokerSettings
from broker.wire.pause import ALL_HOSTS, Pause, UnreadablePauses, decode_pauses
from broker.wire.streams import CONFIG_BUCKET

__all__ = ["pause", "resume"]

_GLOBS = click.argument("globs", metavar="[HOST_GLOB]...", nargs=-1)
Pauses = tuple[Pause, ...]


@click.command()
@_GLOBS
@click.option(
    "--for", "how_long", metavar="TIME", type=LENGTH, help="End it by itself after so long."
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
    until, by = _end(how_long), f"{_user()}@{socket.gethostname()}"[:200]
    try:
        made = [
            Pause(hosts=glob, until=until, reason=reason, by=by) for glob in globs or (ALL_HOSTS,)
        ]
    except ValidationError as error:
        first = error.errors()[0]
        glob = f"{first['input']!r} is no glob of host names, such as 'web*'"
        long = "--reason takes at most 500 letters"
        raise click.UsageError(long if first["loc"] == ("reason",) else glob) from None
    names = {one.hosts for one in made}

    def change(value: bytes) -> Pauses:
        return (*(one for one in _in_force(value) if one.hosts not in names), *made)

    _change(settings, "pause", change, as_json=as_json)
    if not as_json:
        click.echo("shippers stop within two seconds; other clients do not")


@click.command()
@_GLOBS
@JSON
@with_settings()
def resume(settings: BrokerSettings, globs: tuple[str, ...], as_json: bool) -> None:
    """End all pauses, or those whose hosts match: shippers go on where they were."""

    def change(value: bytes) -> Pauses:
        if not globs:
            return ()
        pauses = _in_force(value)
        names = [one.hosts for one in pauses]
        for glob in globs:
            if names and glob not in names and not any(fnmatchcase(name, glob) for name in names):
                raise OperatorError(f"{glob} is not paused; paused are {', '.join(names)}")
        return tuple(
            one
            for one in pauses
            if one.hosts not in globs and not any(fnmatchcase(one.hosts, glob) for glob in globs)
        )

    _change(settings, "resume", change, as_json=as_json)


def _end(how_long: timedelta | None) -> datetime | None:
    if how_long is None:
        return None
    if how_long <= timedelta(0):
        raise click.BadParameter("a pause lasts longer than nothing", param_hint="--for")
    try:
        return (now() + how_long + timedelta(seconds=1)).replace(microsecond=0)
    except OverflowError:
        raise click.BadParameter("that is longer than a date can be", param_hint="--for") from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _in_force(value: bytes) -> Pauses:
    try:
        pauses = decode_pauses(value)
    except UnreadablePauses as error:
        raise OperatorError(
            f"the pauses at the broker cannot be read: {error}; `logbroker resume` without a glob removes them"
        ) from None
    return tuple(one for one in pauses if not one.is_over(now()))


def _change(
    settings: BrokerSettings, command: str, change: Callable[[bytes], Pauses], *, as_json: bool
) -> None:
    """Change the pauses at the broker and print them."""

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

    pauses = asking(settings, command, changed)
    if as_json:
        print_json([one.model_dump(mode="json") for one in pauses])
    else:
        shown = [printable(f"{one.hosts}: {one}") for one in pauses] or ["nothing is paused"]
        click.echo("\n".join(shown))
