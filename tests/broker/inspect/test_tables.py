"""Tables at the broker: their lines are kept, and status and check name them."""

import json
from typing import Any

import pytest

from broker.inspect.checks import Grade, judge
from broker.inspect.collect import collect_status
from broker.inspect.status import describe
from broker.retention.purge import find_needs
from nats_logship.client.bucket import write
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import (
    StreamProgress,
    TableProgress,
    UnreadableProgress,
    table_key,
)

pytestmark = pytest.mark.nats


async def publish_and_note(
    connection: Connection, done: int, created: str = "", **fields: Any
) -> None:
    """Publish three messages, of which a table has those below the sequence `done`."""
    for _ in range(3):
        await connection.ask("logs.p0.web01", b"line\n")
    info = await connection.api("STREAM.INFO.LOGS")
    stream = StreamProgress(created or info["created"], done)
    given = {"streams": {"LOGS": stream}, "rows": 9, **fields}
    progress = TableProgress("/srv/logs", "there:1", **given)
    await write(connection, OFFSETS_BUCKET, table_key("7"), progress.encode(), 0)


@pytest.mark.parametrize(
    ("done", "created", "needed"),
    [(3, "", 3), (4, "", None), (9, "", 1), (3, "2020-01-01T00:00:00Z", 1)],
)
async def test_a_purge_keeps_what_a_table_does_not_have(
    connection: Connection, done: int, created: str, needed: int | None
) -> None:
    await publish_and_note(connection, done, created)
    info = await connection.api("STREAM.INFO.LOGS")
    assert (await find_needs(connection, info, [])).get("table /srv/logs") == needed


@pytest.mark.parametrize("done", [(2, 4), (4, 2), (2, 3)])
async def test_a_purge_keeps_what_one_of_two_tables_at_the_same_path_does_not_have(
    connection: Connection, done: tuple[int, int]
) -> None:
    await publish_and_note(connection, done[0])
    info = await connection.api("STREAM.INFO.LOGS")
    other = {"LOGS": StreamProgress(info["created"], done[1])}
    progress = TableProgress("/srv/logs", "elsewhere:1", streams=other)
    await write(connection, OFFSETS_BUCKET, table_key("8"), progress.encode(), 0)

    assert await find_needs(connection, info, []) == {"table /srv/logs": 2}


async def test_a_table_without_a_writer_is_named_until_it_is_forgotten(
    connection: Connection,
) -> None:
    await publish_and_note(connection, 2)
    found = await collect_status(connection)

    [table] = found.tables
    assert (table.behind, table.rows, table.running) == (2, 9, False)
    [text] = [text for name, text in describe(found) if name == "table"]
    assert text.startswith("/srv/logs: 2 behind, the oldest for ")
    named = [one for one in judge(("receivers",), found) if "table" in one.text]
    assert [one.grade for one in named] == [Grade.WARNING]
    assert "logreceiver table --forget" in named[0].text

    key = f"$KV.{OFFSETS_BUCKET}.{table_key('7')}"
    await connection.ask(key, b"", {"KV-Operation": "DEL"})
    assert not (await collect_status(connection)).tables


async def test_status_shows_the_last_commit_and_the_files_of_a_table(
    connection: Connection,
) -> None:
    await publish_and_note(connection, 4, committed_at="2026-11-20T14:03:05.123Z", files=7)
    found = await collect_status(connection)

    [text] = [text for name, text in describe(found) if name == "table"]
    about = "up to date, 9 rows in 7 files, last commit 2026-11-20T14:03:05Z, written by nobody"
    assert text == f"/srv/logs: {about} (7)"
    assert found.document()["tables"][0]["files"] == 7


@pytest.mark.parametrize(
    ("is_released", "hours", "grade"),
    [
        (True, 20, Grade.OK),
        (True, 30, Grade.WARNING),
        (True, 200, Grade.CRITICAL),
        (False, 0, Grade.WARNING),
    ],
)
async def test_a_table_that_is_written_by_runs_is_a_warning_if_a_daily_run_is_missing(
    connection: Connection, is_released: bool, hours: int, grade: Grade
) -> None:
    await publish_and_note(connection, 2, once=True, released=is_released)
    found = await collect_status(connection)
    [table] = found.tables
    waits = table.model_copy(update={"behind_seconds": hours * 3600.0})
    later = found.model_copy(update={"tables": (waits,)})

    [result] = [one for one in judge(("receivers",), later) if "table" in one.text]
    assert (result.grade, "--forget" in result.text) == (grade, grade is not Grade.OK)


@pytest.mark.parametrize("change", [{"version": 2}, {"epoch": "x"}, {"presence": "a b"}])
def test_an_entry_of_another_shape_is_refused(change: dict[str, object]) -> None:
    entry = json.loads(TableProgress("/srv", "a:1").encode())
    assert TableProgress.decode(json.dumps(entry).encode())
    with pytest.raises(UnreadableProgress):
        TableProgress.decode(json.dumps(entry | change).encode())
