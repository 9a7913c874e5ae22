"""The real program ships real journals: each entry once, whatever is killed or lost."""

import json
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from receiver.consume.judging import judge
from receiver.storage.anomalies import Anomaly, AnomalyKind
from tests.conftest import apply_topology
from tests.shipper.conftest import live_report, read_stream
from tests.shipper.logs import ROOT, Ship, run, wait_for_log
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


def shipped(url: str, host: str = "web01") -> Shipped:
    ends: dict[str, int] = {}
    lines, anomalies = b"", []
    for message in ask(url, partial(read_stream, subject=f"logs.*.{host}")):
        for block in message.blocks:
            span = block.section.span
            judged = judge(ends.get(span.file_id), block.section, host, message.sequence)
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


def wait_for(url: str, messages: Sequence[str], *watched: Process, host: str = "web01") -> Shipped:
    """Wait until so many entries are there, and check that it is these, in order."""
    has_all = lambda: len(shipped(url, host).messages) >= len(messages)  # noqa: E731
    wait_until("all entries are there", has_all, 40, watched)
    found = shipped(url, host)
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
        oracle = show(journal.path.parent, "json").splitlines()
        assert list(map(json.loads, found.lines.splitlines())) == list(map(json.loads, oracle))


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


def test_what_was_vacuumed_is_one_gap_of_entries_for_agents_that_ran_or_did_not(
    logs_url: str, ship: Ship, journal: JournalWriter
) -> None:
    expected = journal.write(50)
    agent = ship(logs_url, *options(journal))
    wait_for(logs_url, expected, agent)
    agent.kill()
    journal.write(20)
    journal.rotate()
    expected += journal.write(10)
    (archive,) = journal.archives()
    archive.unlink()
    agent.start()
    found = wait_for(logs_url, expected, agent)
    assert found.gaps == [(51, 72)]
    wait_for_log(agent, "entries 51 to 71 of journal")
    (lost,) = live_report(agent).lost
    assert "entries 51 to 71 of journal" in lost
    agent.kill()
    agent.start()
    expected += journal.write(10)
    (gap,) = wait_for(logs_url, expected, agent).anomalies
    assert (gap.kind, gap.unit, gap.size) == (AnomalyKind.GAP, "entries", 21)
    assert agent.stop(12) == 0


def test_a_gap_behind_entries_that_a_filter_leaves_out_is_reported(
    logs_url: str, ship: Ship, journal: JournalWriter
) -> None:
    journal.write(5)
    journal.archive()
    lost, entries = journal.archive()
    lost.unlink()
    last = f"entry {journal.written - 1:08d}"

    left_out = (f"entry {number:08d}" for number in range(entries.start))
    end(ship(logs_url, "--once", *options(journal), "--exclude-lines", "|".join(left_out)))

    found = shipped(logs_url)
    assert (found.messages, found.gaps) == ([last], [(entries.start, entries.stop)])


def make_program(program: Path, script: str) -> None:
    """Make a program, or another one of it, that is never seen half made."""
    made = program.with_suffix(".new")
    made.write_text(script)
    made.chmod(0o755)
    made.rename(program)


def test_a_killed_journalctl_and_a_missing_one_cost_no_entry(
    logs_url: str, ship: Ship, journal: JournalWriter, tmp_path: Path
) -> None:
    expected = journal.write(3000)
    (programs := tmp_path / "bin").mkdir()
    program, real = programs / "journalctl", shutil.which("journalctl")
    path = {"PATH": f"{programs}:/nowhere", "PYTHONPATH": str(ROOT)}
    agent = ship(logs_url, *options(journal), environment=path)
    wait_for_log(agent, "journalctl cannot be run: No such file or directory; trying again")
    # it is killed within an entry, at another place each time
    script = f'#!/bin/sh\n{real} "$@" | /usr/bin/head -c $(/usr/bin/shuf -n 1 -i 1-300000)\n'
    make_program(program, f"{script}kill -9 $$\n")
    wait_for_log(agent, "journalctl was killed by signal 9")
    wait_until("some are shipped", lambda: bool(shipped(logs_url).messages), 40, [agent])
    make_program(program, f'#!/bin/sh\nexec {real} "$@"\n')
    assert not wait_for(logs_url, expected, agent).anomalies
    assert agent.read_log().count("cannot be run") == 1
    assert agent.stop(12) == 0


def test_agents_of_other_hosts_and_brokers_ship_all_of_one_journal_and_a_second_one_ends(
    logs_url: str, second_url: str, ship: Ship, journal: JournalWriter, tmp_path: Path
) -> None:
    apply_topology(second_url)
    expected = journal.write(300)
    given = (*options(journal), "--state-dir", tmp_path / "state")
    places = [(logs_url, "web01"), (logs_url, "web02"), (second_url, "web01")]
    agents = [ship(url, *given, host=host) for url, host in places]
    for _ in range(2):
        for (url, host), agent in zip(places, agents, strict=True):
            assert not wait_for(url, expected, agent, host=host).anomalies
        for agent in agents:
            agent.kill()
            expected += journal.write(20)
            agent.start()
        expected.append(journal.rotate())
    for (url, host), agent in zip(places, agents, strict=True):
        assert not wait_for(url, expected, agent, host=host).anomalies

    refused = end(ship(logs_url, *given), 1)

    assert refused == (
        f"logshipper: another shipper (pid {agents[0].pid}) already ships for web01 on this "
        "machine; stop it, or use --take-over"
    )
    assert [agent.stop(12) for agent in agents] == [0, 0, 0]


def test_a_stop_says_how_many_entries_are_not_shipped(
    logs_url: str, ship: Ship, journal: JournalWriter
) -> None:
    expected = journal.write(10)
    agent = ship(logs_url, *options(journal), "--max-rate", "2KiB")
    wait_until("a round is shipped", lambda: bool(shipped(logs_url).messages), 40, [agent])
    expected += journal.write(5000)
    assert agent.stop(12) == 0
    left = re.search(r"stopped, .* and ([0-9]+) entries unshipped", agent.read_log())
    assert left, agent.read_log()


def test_a_folder_without_a_journal_is_one_clear_line_and_files_go_on(
    logs_url: str, ship: Ship, tmp_path: Path, log: Path
) -> None:
    words = ("--file", log, "--journal", "--journal-directory", tmp_path)
    agent = ship(logs_url, *words)
    wait_for_log(agent, f"journal:{tmp_path}: no journal files are in it")
    wait_until("the file is shipped", lambda: shipped(logs_url).lines == b"one\n", 40, [agent])
    assert agent.read_log().count("no journal files") == 1
    assert agent.stop(12) == 0
    once = end(ship(logs_url, *words, "--once"), 1)
    assert "no journal files are in it; check --journal-directory" in once
    checked = run("check", "--server", logs_url, *words[2:])
    assert "BAD nothing would be shipped; check --journal-directory\n" in checked.stdout
    mistaken = end(ship(logs_url, "--file", log, "--unit", "nginx"), 2)
    assert "--unit needs --journal" in mistaken
    assert "Traceback" not in mistaken


def test_check_and_the_log_name_units_without_an_entry_and_status_counts_entries(
    logs_url: str, ship: Ship, journal: JournalWriter, own_host: str
) -> None:
    journal.write(5, _SYSTEMD_UNIT="web.service", PRIORITY="6")
    words = (*options(journal), "--unit", "web", "--unit", "nginx*")
    asking = ("--server", logs_url, "--host", own_host)
    checked = run("check", *words, *asking)
    assert checked.returncode == 0, checked.stderr
    assert "there is no entry of a unit nginx* yet; check --unit" in checked.stdout
    assert "unit web" not in checked.stdout
    agent = ship(logs_url, *words, host=own_host)
    wait_for(logs_url, [f"entry {number:08d}" for number in range(5)], agent, host=own_host)
    wait_for_log(agent, "there is no entry of a unit nginx* yet")

    def is_shipped() -> bool:
        (host,) = json.loads(run("status", *asking, "--json").stdout)
        (file,) = host["files"]
        assert file["position_bytes"] is file["behind_bytes"] is None
        return (file["position_entries"], file["behind_entries"]) == (6, 0)

    wait_until("status has the position", is_shipped, 20, [agent])
    assert agent.stop(12) == 0
    saved = run("status", *asking)
    assert "entry 6" in saved.stdout, saved.stderr
