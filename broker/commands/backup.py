"""`logbroker backup` and `logbroker restore`."""

from datetime import timedelta
from pathlib import Path

import click

from broker.app import program
from broker.app.command_line import YES, ask
from broker.app.exits import Exit, OperatorError
from broker.app.units import format_size
from broker.app.untrusted import printable
from broker.backup import directory
from broker.backup.archives import BUCKETS, back_up, check, lines_in, stream_of
from broker.backup.directory import Archive, Backup
from broker.backup.restore import Preview, RestoreOptions, present, preview
from broker.backup.restore import restore as put_back
from broker.client.connection import Connection
from broker.commands.shared import DRY_RUN, LENGTH, asking, now, with_settings
from broker.settings import BrokerSettings
from broker.wire.streams import POSITIONS_BUCKET

__all__ = ["backup", "restore"]

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
_STREAM = click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="NAME",
    help="Only this stream or bucket; may be given several times.  [default: all streams of lines, and their buckets]",
)

_POSITIONS = stream_of(POSITIONS_BUCKET)  # they are of use whatever the number of streams


@click.command()
@_FOLDER
@_STREAM
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Remove older backups in DIR once this one is whole, all but the newest N.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Take none: check the newest backup in DIR, or the one that DIR is, against its digests.",
)
@with_settings()
def backup(
    settings: BrokerSettings, folder: Path, streams: tuple[str, ...], keep: int | None, verify: bool
) -> None:
    """Copy streams, buckets and consumers of a running broker into DIR/<time>, while lines flow."""
    # what is cut short by `timeout` or a service manager must not look done to whoever asked for it
    program.end_on_sigterm(Exit.FAILED)
    if verify:
        found = directory.find(folder)
        for archive in directory.load(found).archives:
            check(found, archive)
        click.echo(f"{found} is whole")
        return
    began = now()
    with directory.new_backup(folder, began) as part:
        names = [stream_of(name) for name in dict.fromkeys(streams)]
        taken = asking(settings, "backup", lambda connection: back_up(connection, names, part, now))
    name, size = directory.name_of(folder, began), format_size(taken.size)
    head = f"{name}: {size} of {taken.server}, what was acknowledged before {taken.began}"
    _print(head, *map(_line, taken.archives))
    click.echo(f"note: {folder} holds all lines in the clear; keep it from others", err=True)
    for removed in directory.prune(folder, keep) if keep else ():
        click.echo(f"removed {removed}, as --keep is {keep}")


def _print(head: str, *lines: str) -> None:
    click.echo("\n  ".join(map(printable, (head, *lines))))


def _line(archive: Archive) -> str:
    return (
        f"{archive.stream}: {archive.messages} messages ({format_size(archive.bytes)}), sequences "
        f"{archive.state.get('first_seq', 0)} to {archive.until - 1}"
    )


@click.command()
@_FOLDER
@_STREAM
@click.option(
    "--replace", is_flag=True, help="Also where streams are that hold something; deletes them."
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 5),
    metavar="N",
    help="How many servers hold each line from now on.  [default: as it was]",
)
@click.option(
    "--max-age",
    metavar="TIME",
    type=LENGTH,
    help="How long lines are kept from now on, for a backup that is older than that.  [default: as it was]",
)
@DRY_RUN
@YES
@with_settings()
def restore(
    settings: BrokerSettings,
    folder: Path,
    streams: tuple[str, ...],
    replace: bool,
    replicas: int | None,
    max_age: timedelta | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Bring back the newest backup in DIR, or the one that DIR is, to a broker that is empty, or with --replace."""
    program.end_on_sigterm(Exit.FAILED)
    found = directory.find(folder)
    kept = directory.load(found)
    archives = _chosen(kept, streams)
    wanted = RestoreOptions(replicas, max_age)
    plan = (kept, archives, wanted)
    seen = asking(settings, "restore", lambda connection: _preview(connection, *plan))
    notes = [f"note: {note}" for note in seen.notes]
    notes += [f"deletes {stream}: {words}" for stream, words in seen.deletes.items()]
    _print(f"from {found}, of {kept.server}, taken at {kept.began}:", *map(_line, archives), *notes)
    _refuse(seen, replace=replace)
    for archive in archives:  # before anything is deleted, and before a person is asked
        check(found, archive)
    if dry_run:
        return
    if seen.deletes and not yes:
        ask("Delete that and restore the backup?")

    async def restored(connection: Connection) -> None:
        # digests take minutes, a person as well, and shippers do not wait for either
        again = await _preview(connection, *plan)
        if new := again.deletes.keys() - seen.deletes.keys():
            raise OperatorError(
                f"{', '.join(sorted(new))} got messages meanwhile, which would be deleted; nothing was changed"
            )
        await put_back(connection, found, archives, wanted)

    asking(settings, "restore", restored)
    click.echo(_outcome(archives))


def _outcome(archives: tuple[Archive, ...]) -> str:
    ends = [f"{one.until - 1} of {one.stream}" for one in archives if one.stream not in BUCKETS]
    if not ends:
        return "restored"
    return (
        "restored\nreceivers, once started, go on at their offsets of the backup, behind the lines that their files have\n"
        f"lines acknowledged after sequence {', '.join(ends)} are not in the backup: receivers report gaps for them"
    )


def _chosen(kept: Backup, streams: tuple[str, ...]) -> tuple[Archive, ...]:
    wanted = {stream_of(name) for name in streams}
    if missing := sorted(wanted - {archive.stream for archive in kept.archives}):
        raise OperatorError(f"the backup holds no stream {', '.join(missing)}")
    return tuple(one for one in kept.archives if not wanted or one.stream in wanted)


def _refuse(seen: Preview, *, replace: bool) -> None:
    if seen.refusals:
        raise OperatorError(f"{'; '.join(seen.refusals)}; nothing was changed")
    if seen.deletes and not replace:
        raise OperatorError(
            "the broker is not empty; nothing was changed (--replace deletes what is said above)"
        )


async def _preview(
    connection: Connection, kept: Backup, archives: tuple[Archive, ...], wanted: RestoreOptions
) -> Preview:
    lines = await lines_in(connection)
    backed_up = {archive.stream for archive in kept.archives}
    others = sorted(set(lines) - backed_up)
    if others and {one.stream for one in archives} != {_POSITIONS}:
        raise OperatorError(
            f"the broker has {', '.join(others)}, which the backup has not: lines are in another number of streams there; "
            "restore to a broker that was started with the same --streams; nothing was changed"
        )
    there = await present(connection, {*BUCKETS, *lines, *(one.stream for one in archives)})
    return preview(archives, there, wanted, now())
