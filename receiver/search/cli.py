"""`logreceiver search`: options in, lines out."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click

from nats_logship.app.command_line import (
    SectionedCommand,
    note_no_line,
    settings_from_options,
    settings_options,
)
from nats_logship.app.exits import Exit, OperatorError
from nats_logship.app.program import log_to_stderr
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import to_nanoseconds
from nats_logship.client.connection import Connection, raise_for_operator
from nats_logship.client.line_search import LineFilter
from nats_logship.history import FOLDER, Query
from receiver.search.find import Finder, StreamFinder, TableFinder
from receiver.search.found import Found, Printer, SearchStatus
from receiver.search.merge import Groups
from receiver.search.received import ReceivedFiles
from receiver.search.settings import SearchSettings

_PROGRAM = "logreceiver search"
_TIMES_IN_FILES = (
    "in received files, --since and --until are compared with the times in lines; a line without "
    "one has that of the line before; a time without a zone is in --time-zone, without that in any"
)


@click.command(cls=SectionedCommand)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object for each line, with its keys."
)
@settings_options(SearchSettings)
def search(as_json: bool, **options: Any) -> None:
    """Find lines in a table or in received files, and in the stream what is newer.

    Each line starts with its host, unless --host names exactly one.
    """
    settings = settings_from_options(SearchSettings, options)
    if settings.table and settings.output:
        if bool(options["table"]) == bool(options["output"]):
            raise click.UsageError("give --table or --output, not both")
        # the other one is of the environment or the settings file
        other = {"output": None} if options["table"] else {"table": ""}
        settings = settings.model_copy(update=other)
    if not (settings.table or settings.output or settings.stream):
        raise click.UsageError("--no-stream needs --table or --output: nothing would be searched")
    log_to_stderr(settings)
    since, until = settings.parse_times()
    query = Query(
        selection=LineSelection(settings.host, settings.file),
        since=None if since is None else to_nanoseconds(since),
        until=None if until is None else to_nanoseconds(until),
        match=settings.match,
        level=settings.level or "",
    )
    wanted = LineFilter(query.selection)
    printer = Printer(is_prefixed=wanted.only_host is None, as_json=as_json)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    is_incomplete = asyncio.run(_search(settings, query, printer))
    if settings.output and (since or until) and sys.stderr.isatty():
        click.echo(_TIMES_IN_FILES, err=True)
    if not printer.has_written:
        note_no_line(since, until)
    if is_incomplete:
        sys.exit(Exit.FAILED)


def _end(number: int, _: object) -> None:
    """End at once: a thread may wait for a reader of standard output who reads no more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}{os.getpid()}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + number)


async def _search(settings: SearchSettings, query: Query, printer: Printer) -> bool:
    """Print what is found; return whether lines are missing, as the log says."""
    connection, status = None, SearchStatus()
    if settings.stream:
        connection = Connection(settings.server, _PROGRAM, access=settings.access)
    try:
        if connection is None:
            return await _show(settings, query, None, status, printer)
        with _say_what_needs_no_broker(settings), raise_for_operator(connection):
            await connection.connect()
        with raise_for_operator(connection):
            return await _show(settings, query, connection, status, printer)
    finally:
        status.clear()
        if connection is not None:
            await connection.close()


@contextmanager
def _say_what_needs_no_broker(settings: SearchSettings) -> Iterator[None]:
    try:
        yield
    except OperatorError as error:
        hint = "; --no-stream searches the rest" if settings.table or settings.output else ""
        raise type(error)(f"{error}{hint}") from None


async def _show(
    settings: SearchSettings,
    query: Query,
    connection: Connection | None,
    status: SearchStatus,
    printer: Printer,
) -> bool:
    finder = await _open(settings, query, connection, status)
    groups = _choose(finder, settings.limit, is_first=bool(settings.since))
    if settings.context:
        groups = finder.add_context(groups, settings.context)
    async with aclosing(groups):
        async for found in groups:
            status.clear()
            await asyncio.to_thread(printer.write, found)
    return finder.is_incomplete


async def _open(
    settings: SearchSettings, query: Query, connection: Connection | None, status: SearchStatus
) -> Finder:
    if settings.table:
        options = dict(pair.split("=", 1) for pair in settings.storage_option)
        table = TableFinder(settings.table, options, query, connection, status)
        await table.open()
        return table
    if settings.output:
        from receiver.search.files import FilesFinder  # it loads much of a receiver

        state = settings.state_dir or settings.output / ".logreceiver"
        stores = settings.output, state, settings.zone
        received = await asyncio.to_thread(ReceivedFiles.read, *stores)
        return await FilesFinder.open(received, query, settings.context, connection, status)
    assert connection is not None, "something is searched"
    return await StreamFinder.open(connection, query, status)


async def _choose(finder: Finder, limit: int | None, *, is_first: bool) -> Groups:
    """Yield the lines to show: all, or the first or last ones."""
    if limit is not None and not is_first:
        yield await finder.find_last(limit)
        return
    async with aclosing(finder.find(limit)) as groups:
        left = limit
        async for found in groups:
            if left is None:
                yield found
                continue
            found, left = _cut(found, left)
            yield found
            if not left:
                return


def _cut(found: list[Found], most: int) -> tuple[list[Found], int]:
    """Return the first lines or records, `most` without their context, and how many are left."""
    kept = list[Found]()
    for one in found:
        if not most and (one.begins or not one.is_context):
            break
        if one.is_context:
            kept.append(one)
            continue
        lines = [*islice(one.split_up(), most)]
        kept += lines
        most -= len(lines)
    return kept, most
