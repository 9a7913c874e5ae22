"""The commands `logreceiver offsets`: options in, questions asked, exit codes out; decides nothing."""

from datetime import UTC, datetime
from typing import Any

import click

from broker.app.command_line import given, settings_options
from broker.app.exits import ConfigurationError, OperatorError
from broker.app.program import log_to_stderr
from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.settings import ASKING, ReceiverSettings
from receiver.storage.disk import Locked, exclusive_lock
from receiver.storage.folders import make_folder
from receiver.storage.site import Site

__all__ = ["COMMANDS", "offsets"]

COMMANDS = ("offsets", "show", "set", "adopt")

_PROGRAM = "logreceiver offsets"
_FIELDS = ASKING | {"partition"}
_LOCK_PATIENCE = 1.0  # seconds
_YES = click.option("--yes", is_flag=True, help="Do it without asking.")
_FORCE = click.option(
    "--force", is_flag=True, help="Also where a receiver is running, which this ends."
)


@click.group()
def offsets() -> None:
    """Show, and move by hand, from where on partitions are received."""


@offsets.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options(ReceiverSettings, _FIELDS)
def show(as_json: bool, **options: Any) -> None:
    """Show each partition's offset, its owner, and what waits behind it."""
    settings = _settings(options)
    from receiver.status.status import Status, ask, gather

    wanted = settings.wanted if settings.partition else range
    found = Status(partitions=ask(settings, _PROGRAM, lambda c: gather(c, _now(), wanted)))
    shown = found.model_dump_json(indent=2, include={"partitions"})
    click.echo(shown if as_json else found.as_text())


@offsets.command("set")
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="A sequence, earliest, latest, or a time such as 2026-11-20T10:00+01:00 (UTC without a zone) or 2h.",
)
@_YES
@_FORCE
@settings_options(ReceiverSettings, _FIELDS)
def set_(to: str, yes: bool, force: bool, **options: Any) -> None:
    """Move the offset of partitions; their files stay as they are, but for a batch that was never committed."""
    _move(_settings(options, needs_partition=True), to, yes=yes, force=force)


@offsets.command()
@_YES
@settings_options(ReceiverSettings, _FIELDS | {"output", "state_dir", "path_template"})
def adopt(yes: bool, **options: Any) -> None:
    """Take the files in --output as they are: as all that was received before the offset, whatever the store says.

    For a store (p<N>.db in --state-dir) that is lost, damaged, or does not go with the offset or the files. Lines that
    were written and never committed stay, and may come a second time: it is your word that this is right. Behind an
    older store gaps are told of what the files have received since it was copied. No receiver may be running there.
    """
    settings = _settings(options, needs_partition=True)
    from broker.client.config import require_layout
    from receiver.status.status import ask

    async def look(connection: Connection) -> list[tuple[Site, Offset]]:
        partitions = (await require_layout(connection)).partitions
        chosen = settings.wanted(partitions)
        return [
            (_site(settings, number, partitions), await _offset(connection, number))
            for number in chosen
        ]

    for site, offset in ask(settings, _PROGRAM, look):
        click.echo(
            f"partition {site.partition}: the files in {site.output} are taken as they are, and it goes on at sequence "
            f"{offset.next}"
        )
        _confirm(yes=yes)
        click.echo(f"partition {site.partition}: {_adopted(site, offset)} files adopted")


def _site(settings: ReceiverSettings, partition: int, partitions: int) -> Site:
    output, state = settings.output.absolute(), settings.state.absolute()
    return Site(output, state, partition, settings.path_template, partitions)


async def _offset(connection: Connection, partition: int) -> Offset:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    if entry is None:
        raise ConfigurationError(
            f"partition {partition} has no offset; `logreceiver offsets set --partition {partition} --to SEQUENCE` first"
        )
    try:
        return Offset.decode(entry.value)
    except UnreadableOffset as error:
        raise ConfigurationError(
            f"partition {partition}: {error}; `logreceiver offsets set` writes one back"
        ) from None


def _adopted(site: Site, offset: Offset) -> int:
    from receiver.storage.site import adopt as take

    try:
        make_folder(site.state)
        with exclusive_lock(site.state / f"p{site.partition}.lock", _LOCK_PATIENCE):
            return take(site, offset)
    except Locked as error:
        raise OperatorError(f"{error}: a receiver is running there; end it first") from None
    except OSError as error:
        raise OperatorError(f"{error.filename or site.output}: {error.strerror}") from None


def _settings(options: dict[str, Any], *, needs_partition: bool = False) -> ReceiverSettings:
    settings = given(ReceiverSettings, options)
    log_to_stderr(settings)
    if needs_partition and not settings.partition:
        raise click.UsageError("--partition is required: a number from 0, several, or all")
    return settings


def _move(settings: ReceiverSettings, to: str, *, yes: bool, force: bool) -> None:
    from broker.client.config import require_layout
    from receiver.status.move import Move, carry_out, propose
    from receiver.status.status import ask

    async def proposed(connection: Connection) -> list[Move]:
        now = _now()
        layout = await require_layout(connection)
        return [
            await propose(connection, layout.stream_of(number), number, to, now)
            for number in settings.wanted(layout.partitions)
        ]

    async def move_all(connection: Connection) -> None:
        for move in moves:
            await carry_out(connection, move)
            click.echo(f"partition {move.partition}: done")

    moves = ask(settings, _PROGRAM, proposed)
    for move in moves:
        click.echo(f"partition {move.partition}: {move.words}")
        if move.objection and not force:
            raise OperatorError(f"partition {move.partition}: {move.objection}")
    _confirm(yes=yes)
    ask(settings, _PROGRAM, move_all, patience=0.0)


def _confirm(*, yes: bool) -> None:
    try:
        agreed = yes or click.confirm("Do it?")
    except click.Abort:
        agreed = False
    if not agreed:
        raise OperatorError("nothing was changed; --yes does it without asking")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
