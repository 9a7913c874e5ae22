"""`logbroker backup` and `logbroker restore`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from broker.backup import archives
from broker.backup.archives import BUCKETS, Backup, StreamArchive, back_up, list_line_streams
from broker.backup.restore import find_streams, format_content, preview
from broker.backup.restore import restore as put_back
from broker.commands import shared
from broker.settings import BrokerSettings
from nats_logship.app import program
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import Exit, OperatorError
from nats_logship.app.text import printable
from nats_logship.app.units import format_size
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import POSITIONS_BUCKET

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
_POSITIONS = f"KV_{POSITIONS_BUCKET}"  # they are of use whatever the number of streams


@click.command(cls=SectionedCommand)
@_FOLDER
@shared.option(
    "--keep", "N", "Then remove all backups in DIR but the newest N.", type=click.IntRange(1)
)
@click.option("--verify", is_flag=True, help="Check the newest backup in DIR, and take none.")
@shared.JSON
@shared.with_settings()
def backup(
    settings: BrokerSettings, folder: Path, keep: int | None, verify: bool, as_json: bool
) -> None:
    """Copy streams and buckets of a running broker into DIR/<time>, while lines flow."""
    # what is cut short by `timeout` or a service manager must not look done to whoever asked for it
    program.end_on_sigterm(Exit.FAILED)
    if verify:
        found = archives.find_backup(folder)
        for archive in archives.load_backup(found).archives:
            archives.check_archive(found, archive)
        click.echo(f"{found} is whole", err=as_json)
        if as_json:
            shared.print_json({"backup": str(found), "whole": True})
        return
    began = shared.now()
    with archives.new_backup(folder, began) as part:
        taken = shared.run_on_broker(settings, "backup", lambda c: back_up(c, part, began))
    name, size = part.with_suffix(""), sum(one.size for one in taken.archives)
    head = (
        f"{name}: {format_size(size)} of {taken.server}, what was acknowledged before {taken.began}"
    )
    click.echo(_text(head, map(_line, taken.archives)), err=as_json)
    click.echo(f"note: {folder} holds all lines in the clear; keep it from others", err=True)
    gone = archives.prune(folder, keep) if keep else []
    for path in gone:
        click.echo(f"removed {path}, as --keep is {keep}", err=as_json)
    if as_json:
        done = {"archives": _as_json(taken.archives), "removed": list(map(str, gone))}
        shared.print_json({"backup": str(name), **done})


def _text(head: str, lines: Iterable[str]) -> str:
    return "\n  ".join(map(printable, (head, *lines)))


def _as_json(taken: Sequence[StreamArchive]) -> list[dict[str, Any]]:
    return [one.model_dump(include={"stream", "size", "created", "state"}) for one in taken]


def _line(archive: StreamArchive) -> str:
    return f"{archive.stream}: {format_content(archive.state)}"


@click.command(cls=SectionedCommand)
@_FOLDER
@click.option("--positions", is_flag=True, help="Only those of hosts, in LOGS_POSITIONS.")
@click.option("--replace", is_flag=True, help="Delete what streams of a broker hold already.")
@shared.with_mode
@shared.with_settings()
def restore(
    settings: BrokerSettings, mode: shared.Mode, folder: Path, positions: bool, replace: bool
) -> None:
    """Bring back the newest backup in DIR, or the one that DIR is, to a broker that is empty, or with --replace.

    Replicas, storage and limits are those of the broker's streams; `logbroker apply` changes them.
    """
    program.end_on_sigterm(Exit.FAILED)
    found = archives.find_backup(folder)
    kept = archives.load_backup(found)
    chosen = [one for one in kept.archives if not positions or one.stream == _POSITIONS]
    deletes = shared.run_on_broker(settings, "restore", lambda c: _preview(c, kept, chosen))
    lines = [f"deletes {stream}: {words}" for stream, words in deletes.items()]
    head = f"from {found}, of {kept.server}, taken at {kept.began}:"
    mode.echo(_text(head, [*map(_line, chosen), *lines]))
    if deletes and not replace:
        raise OperatorError(
            "the broker is not empty; nothing was changed (--replace deletes what is said above)"
        )
    for archive in chosen:  # before anything is deleted, and before a person is asked
        archives.check_archive(found, archive)
    question = "Delete that and restore the backup?" if deletes else ""
    if is_agreed := mode.confirm(question):
        work = partial(_restore, found=found, kept=kept, chosen=chosen, deletes=deletes)
        shared.run_on_broker(settings, "restore", work)
        mode.echo(_after(chosen))
    if mode.as_json:
        done = {"archives": _as_json(chosen), "deletes": deletes, "restored": is_agreed}
        shared.print_json({"backup": str(found), **done})


async def _restore(
    connection: Connection,
    found: Path,
    kept: Backup,
    chosen: Sequence[StreamArchive],
    deletes: Mapping[str, str],
) -> None:
    # digests take minutes, a person as well, and shippers do not wait for either
    again = await _preview(connection, kept, chosen)
    if new := again.keys() - deletes.keys():
        raise OperatorError(
            f"{', '.join(sorted(new))} got messages meanwhile, which would be deleted; nothing was changed"
        )
    await put_back(connection, found, chosen)


def _after(chosen: Sequence[StreamArchive]) -> str:
    """Say what receivers find behind a restore."""
    ends = [f"{one.until - 1} of {one.stream}" for one in chosen if one.stream not in BUCKETS]
    if not ends:
        return "restored"
    return (
        "restored; receivers, once started, go on at their offsets of the backup, behind the lines that their files have, "
        f"and report gaps for what was acknowledged after sequence {', '.join(ends)}"
    )


async def _preview(
    connection: Connection, kept: Backup, archives: Sequence[StreamArchive]
) -> dict[str, str]:
    lines = await list_line_streams(connection)
    others = sorted(set(lines) - {archive.stream for archive in kept.archives})
    if others and {one.stream for one in archives} != {_POSITIONS}:
        raise OperatorError(
            f"the broker has {', '.join(others)}, which the backup has not: lines are in another number of streams there; "
            "restore to a broker that was started with the same --streams; nothing was changed"
        )
    there = await find_streams(connection, {*BUCKETS, *lines, *(one.stream for one in archives)})
    return preview(archives, there)
