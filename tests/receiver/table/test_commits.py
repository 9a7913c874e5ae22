"""What a commit to the log of a table needs: files that readers see, and a version of its own."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType

from nats_logship.app.exits import OperatorError
from nats_logship.client.access import Access
from nats_logship.client.connection import Connection
from receiver.table.location import Location
from receiver.table.plan import Range
from receiver.table.write import Broker, Written, write_range
from tests.receiver.table.tabled import Tabled, make_writer

pytestmark = [pytest.mark.nats, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("store", ["folder", "s3"])
@pytest.mark.parametrize("of", ["lines", "gaps"])
async def test_files_that_executors_have_written_elsewhere_are_not_committed(
    tabled: Tabled,
    connection: Connection,
    request: pytest.FixtureRequest,
    store: str,
    of: str,
) -> None:
    if store == "s3":
        tabled.location = request.getfixturevalue("s3")
    elsewhere = replace(tabled.location, uri=f"{tabled.location.uri}-of-executor")

    def run_elsewhere(ranges: Sequence[Range]) -> Iterable[Written]:
        broker, lines, gaps = Broker((tabled.url,), Access()), *children(elsewhere)
        return [write_range(one, broker, lines, gaps) for one in ranges]

    if of == "gaps":
        bad = {"Log-Agent": "1-1", "Log-Read-At": "x"}
        await asyncio.to_thread(tabled.publish, ("logs.p0.x", b"1\n", bad))
    else:
        await asyncio.to_thread(tabled.publish_some, 3)
    writer = make_writer(connection, tabled.url, tabled.location)
    run_here, writer.run_tasks = writer.run_tasks, run_elsewhere

    with pytest.raises(OperatorError, match=f"{of}/date=.* share the folder with all executors"):
        await writer.run_once(asyncio.Event())

    for one in await asyncio.to_thread(open_both, tabled.location):
        assert not one.file_uris()
    writer.run_tasks = run_here
    await writer.run_once(asyncio.Event())
    await asyncio.to_thread(tabled.has_each_line_once)
    assert len(await asyncio.to_thread(tabled.gaps)) == (of == "gaps")


def children(location: Location) -> tuple[Location, Location]:
    return location.child("lines"), location.child("gaps")


def open_both(location: Location) -> list[DeltaTable]:
    both = children(location)
    return [DeltaTable(one.root, storage_options=one.storage_options) for one in both]


def add_no_rows(lines: DeltaTable) -> None:
    write_deltalake(lines, lines.to_pyarrow_table().slice(0, 0), mode="append")


def change_rows(lines: DeltaTable) -> None:
    lines.update({"level": "'NOTICE'"}, predicate="host = 'web01'")


def add_a_column(lines: DeltaTable) -> None:
    lines.alter.add_columns([Field(f"added_{lines.version()}", PrimitiveType("string"))])


@pytest.mark.parametrize("commit", [add_no_rows, change_rows, add_a_column])
async def test_a_program_that_commits_in_each_round_keeps_no_round_from_its_commit(
    tabled: Tabled, connection: Connection, commit: Callable[[DeltaTable], object]
) -> None:
    await asyncio.to_thread(tabled.publish_some, 3)
    await asyncio.to_thread(tabled.write)
    writer, rounds = make_writer(connection, tabled.url, tabled.location), 0
    run_tasks = writer.run_tasks

    def commit_meanwhile(ranges: Sequence[Range]) -> Iterable[Written]:
        nonlocal rounds
        rounds += 1
        written = [*run_tasks(ranges)]
        for one in open_both(tabled.location):
            before = one.version()
            (commit if one.metadata().name == "lines" else add_a_column)(one)
            assert one.version() > before
        return written

    writer.run_tasks = commit_meanwhile
    await asyncio.to_thread(tabled.publish_some, 3)
    await writer.run_once(asyncio.Event())

    assert rounds == 1
    await asyncio.to_thread(tabled.has_each_line_once)
