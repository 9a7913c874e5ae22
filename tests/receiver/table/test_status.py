"""`logreceiver status` shows how far tables are written."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_logship.client import bucket
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import table_key
from receiver.cli import logreceiver
from receiver.table.location import Location
from tests import secured
from tests.receiver.table.tabled import Tabled
from tests.support.processes import Processes
from tests.support.suite import ask

pytestmark = pytest.mark.nats


def show_status(*options: str) -> str:
    shown = CliRunner().invoke(logreceiver, ["status", *options], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_a_table_is_shown_with_what_waits_and_its_last_commit(tabled: Tabled) -> None:
    tabled.publish_some(3)
    tabled.write()
    tabled.publish_some(2)
    progress, table_id = tabled.progress(), str(tabled.lines.metadata().id)
    assert progress

    [table] = json.loads(show_status("--json", "--server", tabled.url))["tables"]
    text = show_status("--server", tabled.url)

    known = {"id": table_id, "table": tabled.location.uri, "behind": 2, "rows": 9, "files": 1}
    known |= {"committed_at": progress.committed_at, "running": False}
    assert known.items() <= table.items()
    assert table["behind_seconds"] > 0
    assert f"table {tabled.location.uri}: 2 behind, the oldest for " in text
    assert f"9 rows in 1 file, last commit {progress.committed_at[:19]}Z" in text


def test_a_table_that_is_forgotten_or_was_never_there_is_not_shown(tabled: Tabled) -> None:
    assert json.loads(show_status("--json", "--server", tabled.url))["tables"] == []
    tabled.publish_some(1)
    tabled.write()

    forgotten = CliRunner().invoke(
        logreceiver,
        ["table", "--forget", "--table", tabled.location.uri, "--server", tabled.url],
    )

    assert forgotten.exit_code == 0, forgotten.output
    assert "table" not in show_status("--server", tabled.url)


def test_an_entry_that_cannot_be_read_is_named(tabled: Tabled) -> None:
    ask(tabled.url, lambda c: bucket.write(c, OFFSETS_BUCKET, table_key("7"), b"x", 0))

    assert "table 7: its entry cannot be read" in show_status("--server", tabled.url)


def test_the_credential_of_a_receiver_of_all_partitions_sees_tables(
    processes: Processes, tmp_path: Path
) -> None:
    server = secured.start_secured(processes, tmp_path, secured.receiver("all"))
    tabled = Tabled(server.url(), Location(str(tmp_path / "table")))
    tabled.publish_some(3)
    tabled.write()

    [table] = json.loads(show_status("--json", *server.options("all")))["tables"]

    assert (table["behind"], table["rows"]) == (0, 9)
    assert "Violation" not in server.read_log()
