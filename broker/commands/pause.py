"""`logbroker pause` and `logbroker resume`: stop shippers from publishing, and let them go on."""

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from fnmatch import fnmatchcase

import click
from pydantic import ValidationError

from broker.commands import shared
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import OperatorError
from nats_logship.app.text import printable
from nats_logship.client.answer import Rejected
from nats_logship.client.bucket import Conflict, read, write
from nats_logship.client.connection import Connection
from nats_logship.wire.pause import (
    ALL_HOSTS,
    PAUSE_KEY,
    Pause,
    UnreadablePauses,
    decode_pauses,
    encode_pauses,
)
from nats_logship.wire.streams import CONFIG_BUCKET

_GLOBS = click.argument("globs", metavar="[HOST_GLOB]...", nargs=-1)
_MOST_BY = 200  # characters of who paused
Pauses = tuple[Pause, ...]


@click.command(cls=SectionedCommand)
@_GLOBS
@click.option(
    "--for", "length", metavar="DURATION", type=shared.DURATION, help="End the pause after this."
)
@shared.option("--reason", "TEXT", "Why; shown wherever the pause is shown.", default="")
@shared.JSON
@shared.with_settings()
def pause(
    settings: BrokerSettings,
    globs: tuple[str, ...],
    length: timedelta | None,
    reason: str,
    as_json: bool,
) -> None:
    """Stop the shippers of all hosts, or of hosts that match, within two seconds.

    Their lines wait in their files, until `logbroker resume` or the end of --for.
    """
    names = dict.fromkeys(globs or (ALL_HOSTS,))
    made = _make_pauses(names, length, reason)

    def change(value: bytes) -> Pauses:
        return (*(one for one in _read_pauses(value) if one.hosts not in names), *made)

    _change(settings, "pause", change, as_json=as_json)
    if not as_json:
        click.echo("shippers stop publishing within two seconds; other NATS clients do not")


def _make_pauses(globs: dict[str, None], length: timedelta | None, reason: str) -> Pauses:
    """Return a pause for each glob, by this user; raises click.UsageError."""
    user = os.environ.get("USER") or f"uid {os.getuid()}"
    by = f"{user}@{socket.gethostname()}"[:_MOST_BY]
    try:
        rounded_up = shared.now().replace(microsecond=0) + timedelta(seconds=1)
        until = None if length is None else rounded_up + length
        return tuple(Pause(hosts=glob, until=until, reason=reason, by=by) for glob in globs)
    except OverflowError:
        raise click.UsageError("--for ends later than a date can be written") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise click.UsageError(f"{first['loc'][0]} {first['input']!r}: {first['msg']}") from None


@click.command(cls=SectionedCommand)
@_GLOBS
@shared.JSON
@shared.with_settings()
def resume(settings: BrokerSettings, globs: tuple[str, ...], as_json: bool) -> None:
    """End all pauses, or those whose hosts match; shippers continue where they stopped."""
    ended: list[Pause] = []

    def change(value: bytes) -> Pauses:
        pauses = _read_pauses(value) if globs else ()
        ended[:] = [
            one
            for one in pauses
            if any(glob == one.hosts or fnmatchcase(one.hosts, glob) for glob in globs)
        ]
        return tuple(one for one in pauses if one not in ended)

    _change(settings, "resume", change, as_json=as_json)
    if globs and not ended and not as_json:
        click.echo(printable(f"no pause is of {', '.join(globs)}; none was ended"))


def _read_pauses(value: bytes) -> Pauses:
    """Return the pauses of an entry that are in force; raises `OperatorError`."""
    try:
        return tuple(one for one in decode_pauses(value) if not one.is_over(shared.now()))
    except UnreadablePauses as error:
        raise OperatorError(
            f"the pauses at the broker cannot be read: {error}; "
            "`logbroker resume` without a glob removes them"
        ) from None


def _change(
    settings: BrokerSettings, command: str, change: Callable[[bytes], Pauses], *, as_json: bool
) -> None:
    """Change the pauses at the broker and print them.

    If we die here, the entry is written or not; the same command again has the same result.
    """

    async def change_entry(connection: Connection) -> Pauses:
        try:
            entry = await read(connection, CONFIG_BUCKET, PAUSE_KEY)
            pauses = change(entry.value if entry else b"")
            revision = entry.revision if entry else 0
            await write(connection, CONFIG_BUCKET, PAUSE_KEY, encode_pauses(pauses), revision)
        except Conflict:
            raise OperatorError(
                "somebody else changed the pauses meanwhile; run the command again"
            ) from None
        except Rejected as error:
            if not error.is_nobody:
                raise
            raise OperatorError(
                "bucket LOGS_CONFIG accepts no entry: run `logbroker apply`; "
                "if this broker is a mirror, pause at the site that it copies"
            ) from None
        return pauses

    pauses = shared.run_on_broker(settings, command, change_entry)
    lines = [f"{one.hosts}: {one}" for one in pauses] or ["nothing is paused"]
    shared.show([one.model_dump(mode="json") for one in pauses], *lines, as_json=as_json)
