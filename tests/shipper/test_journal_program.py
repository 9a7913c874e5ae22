"""The real program ships a real journal: each entry once, whatever is killed, rotated or deleted."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from receiver.consume.judging import judge
from receiver.storage.anomalies import Anomaly, AnomalyKind
from tests.shipper.conftest import read_stream
from tests.shipper.logs import Ship, wait_for_log
from tests.shipper.points import IN_MOVE, POINTS
from tests.support.journals import JournalWriter, needs_journal, show
from tests.support.processes import Process, wait_until
from tests.support.suite import ask

pytestmark = [pytest.mark.nats, needs_journal]


class Shipped(NamedTuple):
    """What the stream has of journals: all lines, and what a receiver finds amiss."""

    lines: bytes
    anomalies: Sequence[Anomaly]

    @property
    def messages(self) -> list[str]:
        return re.findall(r": (entry [0-9]+)\n", self.lines.decode())

    @property
    def gaps(self) -> list[tuple[int, int]]:
        return [(one.start, one.end) for one in self.anomalies]


def shipped(url: str) -> Shipped:
    ends: dict[str, int] = {}
    lines, anomalies = b"", []
    for message in ask(url, read_stream):
        for block in message.blocks:
            span = block.section.span
            judged = judge(ends.get(span.file_id), block.section, "web01", message.sequence)
            anomalies += [judged.anomaly] if judged.anomaly else []
            lines += block.lines[judged.skip :]
            ends[span.file_id] = max(span.end, ends.get(span.file_id, 0))
    return Shipped(lines, anomalies)


@pytest.fixture
def journal(tmp_path: Path) -> JournalWriter:
    """Return the writer of a journal in a folder of its own."""
    (folder := tmp_path / "journal").mkdir()
    return JournalWriter(folder)


def options(journal: JournalWriter) -> tuple[str, ...]:
    return "--journal", "--journal-directory", str(journal.path.parent)


def wait_for(url: str, messages: Sequence[str], *watched: Process) -> Shipped:
    """Wait until so many entries are there, and check that it is these, in order."""
    has_all = lambda: len(shipped(url).messages) >= len(messages)  # noqa: E731
    wait_until("all entries are there", has_all, 40, watched)
    found = shipped(url)
    assert found.messages == list(messages)
    return found


def end(process: Process, code: int = 0) -> str:
    assert process.wait(60) == code, process.last_output()
    return process.read_log()


@pytest.mark.parametrize("form", ["short", "json"])
def test_once_ships_each_entry_once_as_journalctl_shows_it(
    logs_url: str, ship: Ship, journal: JournalWriter, form: str
) -> None:
    journal.write(2000)
    journal.put(MESSAGE="two\nlines", _PID="9")
    journal.put(MESSAGE=b"\x00\xff\x1b[1m", SYSLOG_IDENTIFIER="")
    journal.put(MESSAGE="", SYSLOG_PID="4", _SOURCE_REALTIME_TIMESTAMP="1789999999000001")
    journal.put(NO_MESSAGE="of its own")

    for _ in range(2):
        end(ship(logs_url, "--once", *options(journal), "--journal-format", form))

    found = shipped(logs_url)
    assert not found.anomalies
    if form == "short":
        # journalctl ends a message at NUL
        oracle = show(journal.path.parent, "short-iso-precise").splitlines(keepends=True)
        lines = found.lines.replace(b"\0\xff\x1b[1m", b"").splitlines(keepends=True)
        assert lines == oracle
    else:
        entries = [sorted(line.split(b",")) for line in found.lines.splitlines()]
        oracle = [sorted(line.split(b",")) for line in show(journal.path.parent, "json").splitlines()]
        assert [len(one) for one in entries] == [len(one) for one in oracle]


def test_every_entry_arrives_once_after_a_kill_at_any_point_and_a_rotation(
    logs_url: str, ship: Ship, journal: JournalWriter, tmp_path: Path
) -> None:
    (faults := tmp_path / "faults").mkdir()
    expected = journal.write(1000)
    agent = ship(logs_url, *options(journal), environment={"LOGSHIP_FAULTS": str(faults)})
    wait_for(logs_url, expected, agent)
    for point in (point for point in POINTS if point not in IN_MOVE):
        (faults / point).touch()
        expected += journal.write(100)
        expected.append(journal.rotate())
        expected += journal.write(100)
        if point in {"claimed", "rebuilt", "snapshot_sending", "snapshot_written"}:
            agent.kill()
            agent.start()
        wait_until(f"killed at {point}", lambda: not agent.is_running(), 40)
        (faults / point).unlink(missing_ok=True)
        expected += journal.write(10)
        agent.start()
        found = wait_for(logs_url, expected, agent)
    assert not found.anomalies
    assert len(journal.archives()) >= 5
    assert agent.stop(12) == 0
