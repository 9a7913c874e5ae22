"""A journal and records through all programs, killed: received, verified, replayed, reported."""

import json
from itertools import count
from pathlib import Path

import pytest

from receiver.storage.anomalies import GAP_REPORTS
from tests.support.commands import run_command
from tests.support.journals import JournalWriter, needs_journal, show
from tests.support.oracle import judge
from tests.support.processes import Process, wait_until
from tests.support.received import read_received, received_bytes
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, needs_journal]

_LINE = "short-iso-precise"
_FORGED = "__CURSOR=s=00;i=7;b=1;m=1;t=1;x=1\nMESSAGE=forged"
_HOSTILE: list[str | bytes] = [
    *("", "\n", "two\nlines", f"a\n\n{_FORGED}\n\n{_FORGED}", "é€😀", "x" * (1024 * 1024 + 9)),
    *(
        b"\0",
        b"a\0b\n\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\x1b[2J\r",
        b"\0" * 70_000,
        b"\xff" * 70_000,
    ),
]
_NUMBERS = count(1)


def _append_records(path: Path, records: int) -> None:
    with path.open("ab") as file:
        for number in (next(_NUMBERS) for _ in range(records)):
            file.write(b"record %06d\n" % number + b"  at %06d\n\n" % number * (number % 7 + 1))


def _wait_for(suite: Suite, size: int, *programs: Process) -> None:
    is_there = lambda: received_bytes(suite.output, "journal01") >= size  # noqa: E731
    wait_until("all is received", is_there, 150, programs)


def test_a_journal_and_records_arrive_once_verify_replay_and_report_what_was_vacuumed(
    suite: Suite, tmp_path: Path
) -> None:
    suite.partitions = 1
    (folder := tmp_path / "journal").mkdir()
    journal, log = JournalWriter(folder), tmp_path / "app.log"
    suite.start_broker()
    receiver = suite.start_receiver((0,))
    words = ("--journal", "--journal-directory", str(folder), "--records", "indented")
    shipper = suite.start_shipper("journal01", [log], *words)
    suite.wait_for_receiver(receiver, (0,))
    for program in (shipper, receiver, shipper):
        journal.write(300)
        _append_records(log, 300)
        program.kill()
        journal.rotate()
        journal.write(300)
        _append_records(log, 300)
        program.start()
    shown = show(folder, _LINE)
    _wait_for(suite, len(shown) + log.stat().st_size, shipper, receiver)
    shipper.kill()
    first, vacuumed = journal.written + 1, len(journal.archives())
    journal.write(50)
    journal.rotate()
    journal.write(10)
    shown += show(folder, _LINE, "--lines=10")
    journal.archives()[vacuumed].unlink()
    shipper.start()
    _wait_for(suite, len(shown) + log.stat().st_size, shipper, receiver)

    received = read_received(suite.output, "journal01")
    verdict = judge([shown, log.read_bytes()], received)
    assert verdict.is_perfect, verdict
    records = log.read_bytes().removeprefix(b"record ").split(b"\nrecord ")
    assert all(b"record %b\n" % one.removesuffix(b"\n") in received for one in records)
    reports = lambda: [*suite.output.glob(GAP_REPORTS)]  # noqa: E731
    wait_until("the gap is committed, and reported", lambda: len(reports()) == 1, 30, [receiver])
    (gap,) = map(json.loads, reports()[0].read_text("utf-8").splitlines())
    assert (gap["file"], gap["entries"]) == (f"journal:{folder}", 51)
    assert (gap["start"], gap["end"]) == (first, first + 51)

    assert [shipper.stop(), receiver.stop()] == [0, 0]
    state = suite.folder / "state" / receiver.name
    where = ("--server", suite.url, "--output", suite.output, "--state-dir", state)
    assert "differ" not in run_command("logreceiver", "verify", *where, seconds=180)
    again = tmp_path / "again"
    words = ("--server", suite.url, "--since", "earliest", "--output", str(again))
    run_command("logreceiver", "replay", *words, seconds=180)
    assert read_received(again, "journal01") == received
    shown = run_command("logshipper", "status", *where[:2], "--host", "journal01", "--json")
    (agent,) = json.loads(shown)
    positions = {one["path"]: one["position_entries"] for one in agent["files"]}
    assert positions == {f"journal:{folder}": journal.written + 1, str(log): None}


def test_what_a_hostile_program_logs_is_verified_replayed_and_counted_as_any_other_entry(
    suite: Suite, tmp_path: Path
) -> None:
    suite.partitions = 1
    (folder := tmp_path / "journal").mkdir()
    journal = JournalWriter(folder)
    journal.put_all(*([("MESSAGE", one), ("OTHER", one)] for one in _HOSTILE), [("NO", "message")])
    journal.put_all([("MESSAGE", one) for one in _HOSTILE], [("MESSAGE", "the last one")])
    entries = len(_HOSTILE) + 3
    suite.start_broker()
    receiver = suite.start_receiver((0,))
    source = ("--journal", "--journal-directory", str(folder))
    forms = {"hostile01": "short", "hostile02": "json"}
    for host, form in forms.items():
        agent = suite.start_shipper(host, (), *source, "--journal-format", form, "--once")
        assert agent.wait(90) == 0, agent.last_output()
    suite.wait_for_receiver(receiver, (0,))
    ends = {"hostile01": b": the last one\n", "hostile02": b'"MESSAGE":"the last one"}\n'}
    is_there = lambda: all(  # noqa: E731
        read_received(suite.output, host).endswith(end) for host, end in ends.items()
    )
    wait_until("all is received", is_there, 150, [receiver])
    assert receiver.stop() == 0

    received = {host: read_received(suite.output, host) for host in forms}
    starts = [line for line in received["hostile01"].split(b"\n") if line.startswith(b"20")]
    assert len(starts) == entries - 1  # one has no message
    assert received["hostile02"].count(b"\n") == entries
    assert not [*suite.output.glob(GAP_REPORTS)]
    where = ("--server", suite.url, "--output", suite.output)
    state = ("--state-dir", suite.folder / "state" / receiver.name)
    assert "differ" not in run_command("logreceiver", "verify", *where, *state, seconds=180)
    again = tmp_path / "again"
    words = ("--server", suite.url, "--since", "earliest", "--output", again)
    run_command("logreceiver", "replay", *words, seconds=180)
    for host in forms:
        assert read_received(again, host) == received[host]
        asked = (*where[:2], "--host", host)
        assert "BAD" not in run_command("logshipper", "check", *source, *asked)
        (report,) = json.loads(run_command("logshipper", "status", *asked, "--json"))
        (file,) = report["files"]
        assert (file["path"], file["position_entries"]) == (f"journal:{folder}", entries + 1)
        assert report["unread"] == []
