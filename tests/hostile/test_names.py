"""File names that are not UTF-8, and messages that nobody foresaw: they stop no partition."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nats_logship.wire.message import Section, Span
from receiver.consume.assignment import Done, SessionLimits
from receiver.storage.anomalies import AnomalyKind
from tests.receiver.partition import Message, Partition, message
from tests.support.commands import run_command

pytestmark = pytest.mark.nats

ODD = os.fsdecode(b"/var/log/\xff\xfe(\xc3.log")
STAY = SessionLimits(longest=60, silence=1.0)


def lines(host: str, file: str, name: str, start: int, payload: bytes) -> Message:
    """Return a message of one file by its id and name."""
    span = Span(file, start, start + len(payload))
    section = Section(name, span, len(payload), payload.count(b"\n"))
    return message(host, (section, payload))


@pytest.mark.parametrize("template", ["{host}.log", "{host}/{file}", "{date}/{host}/{file}"])
def test_a_name_that_is_not_utf8_is_received_with_its_gap_and_stops_nobody(
    partition: Partition, template: str
) -> None:
    partition = replace(partition, template=template)
    partition.publish(
        lines("odd", "a", ODD, 0, b"one\n"),
        lines("web01", "b", "/var/log/b", 0, b"good\n"),
        lines("odd", "a", ODD, 8, b"three\n"),
    )
    first = partition.receive()
    partition.publish(lines("odd", "a", ODD, 14, b"four\n"), lines("odd", "c", ODD, 0, b"new\n"))

    later = partition.receive(first.until)

    anomalies = [(one.kind, one.file, one.start) for one in first.anomalies]
    assert anomalies == [(AnomalyKind.GAP, ODD, 4)]
    assert (later.messages, later.anomalies, later.quarantined) == (2, (), 0)
    found = sorted(partition.files().values())
    assert found == [b"good\n", b"one\nthree\nfour\nnew\n"]
    assert partition.sql("SELECT host, start, until FROM gaps") == [("odd", 4, 8)]
    assert [one["file"] for one in partition.read_gaps()] == [ODD]
    assert not partition.set_aside()


def test_the_programs_that_read_such_files_end_well(partition: Partition, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    partition = replace(partition, template="{host}/{file}", folder=folder)
    partition.publish(lines("odd", "a", ODD, 0, b"one\n"), lines("odd", "a", ODD, 8, b"three\n"))
    partition.receive()
    here = ["--server", partition.url, "--output", str(partition.output)]
    here += ["--state-dir", str(partition.state), "--path-template", partition.template]
    again = ["--since", "earliest", *here[:2], *here[6:]]

    checked = run_command("logreceiver", "verify", *here, "--json")
    run_command("logreceiver", "replay", *again, "--output", tmp_path / "again")
    run_command("logreceiver", "replay", *again, "--output", "-")
    shown = run_command("logreceiver", "status", *here[:6], "--json")
    for arguments in (["get", "1"], ["get", "1", "--json"], ["tail", "--no-follow", "--json"]):
        run_command("logbroker", *arguments, "--server", partition.url)

    assert json.loads(checked)["well"]
    name = "odd/var/log/%FF%FE(%C3.log"
    assert (tmp_path / "again" / name).read_bytes() == b"one\nthree\n"
    assert [one["path"] for one in json.loads(shown)["files"]] == [name]


REFUSING = (
    "CREATE TRIGGER refuse BEFORE INSERT ON {} BEGIN SELECT RAISE(ABORT, 'refused by a test'); END"
)
POISONS = {
    "as it is judged": "INSERT INTO spans VALUES ('bad', 'p', 'x', 0, 0, 0, 0)",
    "as its file is announced": REFUSING.format("files WHEN new.host = 'bad'"),
    "as the batch is stored": REFUSING.format("spans WHEN new.file = 'p'"),
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
@pytest.mark.parametrize("session", [STAY, SessionLimits()], ids=["a stay", "single batches"])
def test_a_message_that_nobody_foresaw_is_quarantined_alone(
    partition: Partition, poison: str, session: SessionLimits
) -> None:
    partition.lines("web00", b"begins")
    first = partition.receive()
    partition.sql(poison)
    texts = [b"%03d\n" % number for number in range(9)]
    good = [lines("web01", "g", "/var/log/g", 4 * n, text) for n, text in enumerate(texts)]
    bad = lines("bad", "p", "/var/log/p", 0, b"poison\n")
    partition.publish(*good[:5], bad, *good[5:], bad)
    whole = Done(0, first.until, first.until)

    while True:
        report = partition.session(session, whole.until)
        if report.done.until == report.done.first:
            break
        whole = whole.then(report.done)

    assert (whole.messages, whole.quarantined, whole.anomalies) == (11, 2, ())
    assert partition.read("web01") == b"".join(texts)
    kept = [(about["sequence"], payload) for about, payload in partition.set_aside()]
    assert kept == [(7, b"poison\n"), (12, b"poison\n")]
    assert all(about["reason"] for about, _ in partition.set_aside())
    assert any("message 7" in notice and "quarantine" in notice for notice in whole.notices)


def test_what_a_shipper_sends_of_a_file_of_any_name_is_received(
    partition: Partition, tmp_path: Path
) -> None:
    partition = replace(partition, template="{host}/{file}")
    host = "web01"  # of partition 0
    logs = tmp_path / "logs"
    logs.mkdir()
    log = logs / os.fsdecode(b"\xff\x01(.log")
    ship = ["--server", partition.url, "--host", host, "--file", logs / "*.log", "--once"]
    for number in range(3):
        with log.open("ab") as file:
            file.write(b"line %d\n" % number)
        run_command("logshipper", *ship)
    second = {"seq": 4}  # behind two claims and the first line
    assert partition.ask(lambda c: c.api("STREAM.MSG.DELETE.LOGS", second))["success"]

    partition.receive()

    name = "%FF%01(.log"
    (found,) = [data for path, data in partition.files().items() if path.endswith(name)]
    assert found == b"line 0\nline 2\n"
    assert partition.sql("SELECT host, start, until FROM gaps") == [(host, 7, 14)]
