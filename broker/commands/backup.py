"""`logbroker backup` and `logbroker restore`: copy streams and buckets to a folder, and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_POSITIONS = f"KV_{POSITIONS_BUCKET}"  # can be restored for any number of streams


@click.command(cls=SectionedCommand)
@_FOLDER
@shared.option(
    "--keep",
    "N",
    "Afterwards remove all backups in DIR except the newest N.",
    type=click.IntRange(1),
)
@click.option("--verify", is_flag=True, help="Check the newest backup in DIR; do not make one.")
@shared.JSON
@shared.with_settings()
def backup(
    settings: BrokerSettings, folder: Path, keep: int | None, verify: bool, as_json: bool
) -> None:
    """Copy the streams and buckets of a running broker to DIR/<time>."""
    # a backup that `timeout` or a service manager ends must not exit with 0
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
        f"{name}: {format_size(size)} of {taken.server}, all that was acknowledged before "
        f"{taken.began}"
    )
    click.echo(_join(head, _describe_all(taken.archives)), err=as_json)
    click.echo(f"note: {folder} holds all lines unencrypted; protect it from other users", err=True)
    gone = archives.prune(folder, keep) if keep else []
    for path in gone:
        click.echo(f"removed {path}, as --keep is {keep}", err=as_json)
    if as_json:
        done = {"archives": _as_json(taken.archives), "removed": list(map(str, gone))}
        shared.print_json({"backup": str(name), **done})


def _join(head: str, lines: Iterable[str]) -> str:
    return "\n  ".join(map(printable, (head, *lines)))


def _as_json(taken: Sequence[StreamArchive]) -> list[dict[str, Any]]:
    return [one.model_dump(include={"stream", "size", "created", "state"}) for one in taken]


def _describe_all(taken: Sequence[StreamArchive]) -> Iterator[str]:
    """Yield a line for each stream of lines, and one for the buckets together."""
    yield from (_describe(one) for one in taken if one.stream not in BUCKETS)
    if buckets := [one for one in taken if one.stream in BUCKETS]:
        size = format_size(sum(one.size for one in buckets))
        yield f"{', '.join(one.stream for one in buckets)}: {size}"


def _describe(archive: StreamArchive) -> str:
    return f"{archive.stream}: {format_content(archive.state)}"


@click.command(cls=SectionedCommand)
@_FOLDER
@click.option(
    "--positions", is_flag=True, help="Restore only the positions of shippers (LOGS_POSITIONS)."
)
@click.option("--replace", is_flag=True, help="Delete the messages that the broker's streams hold.")
@shared.with_mode
@shared.with_settings()
def restore(
    settings: BrokerSettings, mode: shared.Mode, folder: Path, positions: bool, replace: bool
) -> None:
    """Restore a backup to an empty broker, or with --replace to any.

    DIR is a backup, or a folder of backups, of which the newest is restored. Replicas, storage and
    limits are those of the broker's streams; `logbroker apply` changes them.
    """
    program.end_on_sigterm(Exit.FAILED)
    found = archives.find_backup(folder)
    kept = archives.load_backup(found)
    chosen = [one for one in kept.archives if not positions or one.stream == _POSITIONS]
    deletes = shared.run_on_broker(settings, "restore", lambda c: _preview(c, kept, chosen))
    lines = [f"deletes {stream}: {content}" for stream, content in deletes.items()]
    head = f"from {found}, of {kept.server}, taken at {kept.began}:"
    mode.echo(_join(head, [*_describe_all(chosen), *lines]))
    if deletes and not replace:
        raise OperatorError(
            "the broker is not empty; nothing was changed (--replace deletes what is listed above)"
        )
    for archive in chosen:  # before anything is deleted or confirmed
        archives.check_archive(found, archive)
    question = "Delete these messages and restore the backup?" if deletes else ""
    if is_agreed := mode.confirm(question):
        work = partial(_restore, found=found, kept=kept, chosen=chosen, deletes=deletes)
        shared.run_on_broker(settings, "restore", work)
        mode.echo(_describe_result(chosen))
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
    # checking and confirming take minutes, and shippers may publish meanwhile
    again = await _preview(connection, kept, chosen)
    if new := again.keys() - deletes.keys():
        raise OperatorError(
            f"{', '.join(sorted(new))} received messages meanwhile that would be deleted; "
            "nothing was changed"
        )
    await put_back(connection, found, chosen)


def _describe_result(chosen: Sequence[StreamArchive]) -> str:
    """Return what receivers do after the restore."""
    ends = [f"{one.until - 1} of {one.stream}" for one in chosen if one.stream not in BUCKETS]
    if not ends:
        return "restored"
    return (
        "restored; receivers continue at the offsets of the backup, after the lines in their "
        f"files, and report gaps for lines acknowledged after sequence {', '.join(ends)}"
    )


async def _preview(
    connection: Connection, kept: Backup, archives: Sequence[StreamArchive]
) -> dict[str, str]:
    lines = await list_line_streams(connection)
    others = sorted(set(lines) - {archive.stream for archive in kept.archives})
    if others and {one.stream for one in archives} != {_POSITIONS}:
        raise OperatorError(
            f"the broker has {', '.join(others)}, which the backup does not have: its number of "
            "streams differs. Restore to a broker with the same --streams; nothing was changed"
        )
    there = await find_streams(connection, {*BUCKETS, *lines, *(one.stream for one in archives)})
    return preview(archives, there)
