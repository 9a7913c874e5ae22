"""Real journals that are rotated, vacuumed, damaged, created again and set back."""

import asyncio
import os
import re
import shutil
import signal
import struct
import time
import tracemalloc
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from shipper.line_filter import ExpressionFilter, Rules
from shipper.sources.journal import headers, process, reader
from shipper.sources.journal.checks import check_journal
from shipper.sources.journal.rules import EntryRules, Options
from shipper.sources.notices import NoticeKind
from shipper.status.report import AgentMeter
from tests.shipper.sources.journal.reading import Reading
from tests.support.journals import JournalWriter, needs_journal
from tests.support.processes import stat_of, wait_until

pytestmark = needs_journal
MIB = 1024 * 1024


@pytest.fixture
def journal(tmp_path: Path) -> JournalWriter:
    return JournalWriter(tmp_path)


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(tmp_path)


async def test_rotated_files_are_read_and_vacuumed_ones_are_gaps(
    journal: JournalWriter, reading: Reading
) -> None:
    expected = journal.write(10)
    found = await reading.read()
    for lost in (False, True, False):
        messages = [*journal.write(5), journal.rotate(), *journal.write(1)]
        if lost:
            journal.archives()[-1].unlink()
        expected += messages[-1:] if lost else messages
        found += await reading.read()
    assert found == expected
    assert len(reading.gaps) == 1
    assert reading.gaps[0][1] - reading.gaps[0][0] == 6


async def test_a_journal_made_again_while_the_clock_is_back_does_not_hide_the_old_one(
    journal: JournalWriter, reading: Reading
) -> None:
    expected = journal.write(10)
    found = await reading.read()
    expected += journal.write(10)
    journal.path.rename(journal.path.with_name("system@old.journal~"))
    journal.clock -= 3_600_000_000
    journal.boot = journal.boot[::-1]
    expected += journal.write(10)
    await reading.restart()
    found += await reading.read()
    assert sorted(found) == expected
    assert sorted(reading.files.values()) == [11, 21]
    assert {block.section.path for block in reading.blocks} == {"journal"}
    assert not reading.gaps


async def test_journals_that_are_interleaved_in_time_are_both_read_while_they_grow(
    tmp_path: Path, reading: Reading
) -> None:
    writers = JournalWriter(tmp_path), JournalWriter(tmp_path, "other")
    found: list[str] = []
    for _ in range(4):
        for writer in writers:
            writer.write(10)
            writer.clock += 5000
        found += await reading.read()
    assert sorted(found) == sorted([f"entry {number:08d}" for number in range(40)] * 2)
    assert list(reading.files.values()) == [41, 41]
    assert not reading.gaps


@pytest.mark.parametrize("tick", [0, -1000], ids=["the same time", "a clock that goes back"])
async def test_order_and_number_of_entries_do_not_depend_on_the_clock(
    journal: JournalWriter, reading: Reading, tick: int
) -> None:
    expected, found = journal.write(1), list[str]()
    for number in range(4):
        journal.tick, journal.boot = tick, f"{number:032x}"
        expected += journal.write(20)
        found += await reading.read()
        await reading.restart()
    assert found == expected
    assert not reading.gaps


@pytest.mark.parametrize(("what", "gaps"), [("entry", [(10, 11)]), ("message", [])])
async def test_an_entry_that_cannot_be_read_is_reported_and_the_others_are_read(
    journal: JournalWriter, reading: Reading, what: str, gaps: list[tuple[int, int]]
) -> None:
    journal.write(9)
    journal.put(MESSAGE="damaged entry")
    after = journal.write(10)
    data = journal.path.read_bytes()
    if what == "entry":
        (at,) = (at for at in range(264, len(data) - 16, 8) if is_entry(data[at : at + 24], 10))
    else:
        at = data.index(b"MESSAGE=damaged entry") - 72
    with journal.path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\x55", at)  # the type of an object
    found = await reading.read()
    assert (len(found), found[-10:]) == (19, after)
    assert reading.gaps == gaps
    assert "entry 10 of journal" in reading.texts or "entries 10 to 10 of" in reading.texts


async def test_a_header_that_claims_too_many_entries_hides_no_later_one_and_no_loss(
    journal: JournalWriter, reading: Reading
) -> None:
    journal.write(10)
    archive, _ = journal.archive()
    await reading.read()
    await reading.restart()
    with archive.open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack("<Q", 2**61), 160)  # the last number
    while "cannot be read" not in reading.texts:
        assert await reading.read() == []

    expected = journal.write(5)
    assert await reading.read() == expected
    first = journal.written + 1
    journal.write(4)
    vacuumed, entries = journal.archive()
    vacuumed.unlink()

    assert await reading.read() == [f"entry {journal.written - 1:08d}"]
    assert reading.gaps == [(first, entries.stop)]


async def test_last_entries_that_cannot_be_read_are_a_gap_once_later_ones_are(
    journal: JournalWriter, reading: Reading
) -> None:
    expected = journal.write(9)
    journal.write(1)
    data = journal.path.read_bytes()
    (at,) = (at for at in range(264, len(data) - 16, 8) if is_entry(data[at : at + 24], 10))
    with journal.path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\x55", at)  # the type of an object
    found = []
    while "entries 10 to 10 of" not in reading.texts:
        found += await reading.read()
    assert (found, reading.gaps) == (expected, [])

    expected = journal.write(1)
    assert await reading.read() == expected
    assert reading.gaps == [(10, 11)]


def is_entry(header: bytes, number: int) -> bool:
    """Whether an object begins here that is the entry of a number."""
    kind, size, own = struct.unpack("<QQQ", header)
    return kind == 3 and size < 1000 and own == number


async def test_long_entries_are_whole_and_longer_ones_are_cut_with_a_notice(
    journal: JournalWriter, reading: Reading
) -> None:
    head = len("2026-09-21T14:13:20.000000+0000 web01 app[7]: \n")
    sizes = [MIB - head, MIB - head + 1, 20 * MIB]
    for size in sizes:
        journal.put(MESSAGE="x" * size)
    journal.put(MESSAGE="lines\n" * 4_000_000)
    journal.write(1)
    assert len(await reading.read()) >= 4
    whole, cut, *huge, last = [block.lines for block in reading.blocks]
    assert (len(whole), len(cut)) == (MIB, MIB)
    assert len(b"".join(huge)) == 2 * MIB
    assert last.endswith(b": entry 00000000\n")
    assert reading.texts.count("cut: ") == 3
    assert "entry 2 of journal" in reading.texts
    await reading.restart()
    assert await reading.read() == []
    assert not reading.gaps


async def test_a_journal_that_was_set_back_is_read_on_under_another_file_id(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    expected = journal.write(10)
    saved = journal.path.read_bytes()
    expected += journal.write(10)
    found = await reading.read()
    await reading.restart()
    for count in (5, 30):  # fewer entries than were read, and more
        (tmp_path / "new").write_bytes(saved)
        (tmp_path / "new").rename(journal.path)
        journal.clock += 3_600_000_000
        expected += journal.write(count)
        found += await reading.read()
        await reading.restart()
    assert found == expected
    assert reading.texts.count("was set back") == 2


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (EntryRules(units=("web",)), [0, 3]),
        (EntryRules(units=("web*",)), [0, 1, 3]),
        (EntryRules(units=("*",), excluded=("web.service",)), [1, 2]),
        (EntryRules(excluded=("*.timer",)), [0, 1, 3, 4]),
        (EntryRules(least=3), [1]),
    ],
)
async def test_units_and_priorities_that_are_left_out_are_no_gap(
    journal: JournalWriter, tmp_path: Path, rules: EntryRules, expected: list[int]
) -> None:
    journal.write(1, _SYSTEMD_UNIT="web.service", PRIORITY="6")
    journal.write(1, _SYSTEMD_UNIT="web@1.service", PRIORITY="3")
    journal.write(1, _SYSTEMD_UNIT="init.scope", UNIT="back.timer", _PID="1")
    journal.write(1, _SYSTEMD_UNIT="x.service", OBJECT_SYSTEMD_UNIT="web.service", _UID="0")
    journal.write(1, UNIT="back.timer", _PID="17")
    reading = Reading(tmp_path, rules=rules)
    found = await reading.read()
    assert not reading.gaps
    assert found == [f"entry {number:08d}" for number in expected]
    assert list(reading.files.values()) == [6]


def test_a_priority_of_any_length_is_not_remembered() -> None:
    rules = EntryRules(units=("a.service",))
    tracemalloc.start()

    for number in range(200):
        fields = {b"PRIORITY": b"6" * 2**20 + b"%d" % number, b"_SYSTEMD_UNIT": b"b.service"}
        assert not rules.select(fields)

    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 10 * 2**20
    assert not EntryRules(least=6).select({b"PRIORITY": b"66"})


async def test_entries_that_are_left_out_keep_no_other_source_waiting(
    journal: JournalWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.write(1000, _SYSTEMD_UNIT="a.service")
    monkeypatch.setattr(reader, "_LONGEST_GATHERING", 0.0)
    monkeypatch.setattr(reader, "_READ", 8192)
    reads, read = list[int](), process.Run.read
    monkeypatch.setattr(process.Run, "read", lambda *given: reads.append(1) or read(*given))
    reading = Reading(tmp_path, rules=EntryRules(units=("b.service",)))
    await reading.list_files()  # reads the names of units
    reads.clear()

    assert await reading.gather() == []

    assert len(reads) == 1
    assert await reading.read() == []
    assert list(reading.files.values()) == [1001]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (EntryRules(units=("x.slice",)), [0, 1]),
        (EntryRules(units=("*.slice",)), [0, 1, 2]),
        (EntryRules(units=("x.slice", "b")), [0, 1, 2]),
        (EntryRules(excluded=("x.slice",)), [2, 3]),
        (EntryRules(excluded=("*.slice",)), [3]),
        (EntryRules(excluded=("system*",)), [0, 1, 2, 3]),
        (EntryRules(units=("*.slice",), excluded=("a",)), [1, 2]),
    ],
)
async def test_a_slice_is_all_units_in_it_as_for_journalctl(
    journal: JournalWriter, tmp_path: Path, rules: EntryRules, expected: list[int]
) -> None:
    journal.write(1, _SYSTEMD_UNIT="a.service", _SYSTEMD_SLICE="x.slice")
    journal.write(1, _SYSTEMD_UNIT="init.scope", UNIT="x.slice", _PID="1")
    journal.write(1, _SYSTEMD_UNIT="b.service", _SYSTEMD_SLICE="system.slice")
    journal.write(1, _SYSTEMD_UNIT="c.service")
    reading = Reading(tmp_path, rules=rules)
    assert await reading.read() == [f"entry {number:08d}" for number in expected]
    assert not reading.gaps
    assert "check --unit" not in reading.texts


async def test_units_are_checked_once_and_only_when_there_is_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs := tmp_path / "bin").mkdir()
    script = f'#!/bin/sh\necho "$*" >>{tmp_path}/runs\nexec {shutil.which("journalctl")} "$@"\n'
    (programs / "journalctl").write_text(script)
    (programs / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    reading = Reading(tmp_path / "journal", rules=EntryRules(units=("nginx",)))
    for _ in range(3):
        reading.notices += await reading.list_files()
    assert not (tmp_path / "runs").exists()
    (tmp_path / "journal").mkdir()
    JournalWriter(tmp_path / "journal").write(3)
    for _ in range(3):
        reading.notices += await reading.list_files()
    assert (tmp_path / "runs").read_text().count("--field=_SYSTEMD_UNIT ") == 1
    assert reading.texts.count("there is no entry of a unit nginx yet") == 1


@pytest.mark.parametrize("limit", ["from_end", "ignore_older"])
async def test_old_entries_of_an_unknown_journal_may_be_left_alone(
    journal: JournalWriter, tmp_path: Path, limit: str
) -> None:
    journal.write(10)
    journal.rotate()
    reading = Reading(tmp_path, **{limit: True if limit == "from_end" else 3600 * 10**9})
    found = await reading.read()
    journal.clock = 4_000_000_000_000_000
    expected = journal.write(5)
    found += await reading.read()
    assert found == expected
    assert not reading.gaps


async def test_a_journal_whose_files_are_all_gone_is_reported_once(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    journal.write(10)
    await reading.read()
    await reading.restart()
    journal.path.unlink()
    expected = JournalWriter(tmp_path, "new").write(3)
    for _ in range(2):
        assert await reading.read() in (expected, [])
        await reading.restart()
    assert reading.texts.count("is gone; it was read up to entry 11") == 1


async def test_unread_entries_of_a_journal_that_is_deleted_as_a_whole_are_a_gap(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    journal.write(10)
    await reading.read()
    journal.write(5)
    assert reading.source is not None
    await reading.source.scan()
    await asyncio.sleep(1.1)  # the longest pause between two runs of journalctl
    journal.path.unlink()
    expected = JournalWriter(tmp_path, "new").write(3)
    found = await reading.gather()
    found += await reading.read()
    assert found == expected
    assert reading.gaps == [(11, 16)]
    (when,) = re.findall("entries 11 to 15 of journal .*, written (.*), are lost", reading.texts)
    assert when == "between 2026-09-21T14:13:20Z and 2026-09-21T14:13:20Z"
    assert "unreadable: " not in reading.texts


async def test_a_file_that_is_renamed_while_the_first_scan_lists_it_is_not_read_again(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    JournalWriter(tmp_path, "other").write(3)
    journal.write(10)
    await reading.read()
    await reading.restart()
    expected = journal.write(5)
    aside = journal.path.rename(tmp_path / "renamed")

    reading.notices += await reading.list_files()
    aside.rename(journal.path)

    assert await reading.read() == expected
    assert (reading.gaps, reading.texts.count("gone")) == ([], 0)


async def test_a_file_that_cannot_be_opened_is_waited_for_and_then_is_a_gap(
    journal: JournalWriter, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.write(10)
    await reading.read()
    journal.write(5)
    path, entries = journal.archive()
    path.unlink()
    path.mkdir()  # root may open everything else

    assert await reading.read() == []
    assert f"{path}: Is a directory" in reading.texts
    await reading.restart()
    monkeypatch.setattr(headers, "_PATIENCE", 0)
    while not (found := await reading.read()):  # nothing is awaited while there is trouble
        pass
    assert found == [f"entry {entries.stop - 1:08d}"]
    assert reading.gaps == [(11, entries.stop)]
    path.rmdir()
    expected = journal.write(3)
    assert await reading.read() == expected


async def test_a_folder_that_comes_late_and_goes_again_is_reported_and_costs_no_entry(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "late"
    reading = Reading(folder)
    for times in (1, 2):
        assert await reading.read() == []
        assert reading.texts.count("missing: No such file or directory") == times
        folder.mkdir()
        expected = JournalWriter(folder).write(2)
        assert await reading.read() == expected
        shutil.rmtree(folder)
    assert not reading.gaps


def groups_that_run(groups: Collection[str]) -> list[str]:
    """Return the process groups in which a process is no zombie."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found = [stat for pid in pids if (stat := stat_of(pid))]
    return [stat[2] for stat in found if stat[2] in groups and stat[0] != "Z"]


@pytest.mark.parametrize(
    ("script", "silence", "problem"),
    [
        ("head -c 40M /dev/zero", 20, "has printed 5 MiB that are no entry; trying again"),
        ("yes 'no entry' | head -c 40M", 20, "has printed 5 MiB that are no entry; trying again"),
        ("sleep 31 & wait", 1, "has printed nothing for 1 seconds; trying again"),
        ("head -c 4M /dev/zero >&2", 20, "ended with 3"),
        ("exec >&-; sleep 31", 20, "was killed by signal 9"),
    ],
)
async def test_a_journalctl_that_prints_no_entry_is_ended_with_all_that_it_has_started(
    journal: JournalWriter,
    reading: Reading,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    silence: int,
    problem: str,
) -> None:
    expected = journal.write(3)
    monkeypatch.setattr(process, "_ENDING", 0.5)
    (programs := tmp_path / "bin").mkdir()
    program = programs / "journalctl"
    begin = f"#!/bin/sh\necho $$ >>{tmp_path}/pids\nsleep 30 >/dev/null 2>&1 &\n"
    program.write_text(f"{begin}{script}\nexit 3\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        patch.setattr(reader, "_LONGEST_SILENCE", silence)
        assert await reading.read() == []
    await reading.restart()
    (text,) = (one.text for one in reading.notices if one.kind is NoticeKind.UNREADABLE)
    assert text.startswith(f"journalctl {problem}")
    groups = (tmp_path / "pids").read_text().split()
    assert groups
    wait_until("all have ended", lambda: not groups_that_run(groups), 10)
    assert await reading.read() == expected
    assert not reading.gaps


async def test_a_journalctl_that_does_not_end_is_left_behind_and_no_other_begins_meanwhile(
    journal: JournalWriter,
    reading: Reading,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = journal.write(3)
    (programs := tmp_path / "bin").mkdir()
    program = programs / "journalctl"
    program.write_text(f"#!/bin/sh\necho $$ >>{tmp_path}/pids\nexec sleep 60\n")
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        patch.setattr(reader, "_LONGEST_SILENCE", 1)
        patch.setattr(process, "_KILLED", 0.5)
        patch.setattr(os, "killpg", lambda *_: None)  # as while it waits for a dying disk
        for _ in range(2):
            assert await reading.read() == []
            await reading.restart()
    (pid,) = map(int, (tmp_path / "pids").read_text().split())
    assert caplog.text.count(f"journalctl, process {pid}, was killed and does not end") == 1
    assert "journalctl cannot be run: the one before was killed and has not ended" in reading.texts
    os.kill(pid, signal.SIGKILL)
    wait_until("it has ended", lambda: not groups_that_run([str(pid)]), 10)
    assert await reading.read() == expected
    assert not reading.gaps


def break_file(path: Path) -> None:
    """Cut a file as a power failure does."""
    os.truncate(path, path.stat().st_size // 4)


def need_new_journalctl(path: Path) -> None:
    """Set a feature flag that no journalctl knows."""
    with path.open("r+b") as file:
        (flags,) = struct.unpack("<I", os.pread(file.fileno(), 4, 12))
        os.pwrite(file.fileno(), struct.pack("<I", flags | 1 << 20), 12)


@pytest.mark.parametrize("spoil", [break_file, need_new_journalctl])
async def test_a_file_that_journalctl_cannot_open_is_a_gap_and_later_ones_are_read(
    journal: JournalWriter,
    reading: Reading,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
) -> None:
    monkeypatch.setenv("SYSTEMD_LOG_LEVEL", "debug")
    monkeypatch.setenv("SYSTEMD_LOG_TARGET", "null")
    path, entries = journal.archive()
    spoil(path)
    expected = [f"entry {entries.stop - 1:08d}", *journal.write(3)]

    assert await reading.read() == expected
    assert await reading.read() == []

    assert reading.gaps == [(entries.start, entries.stop)]
    assert reading.texts.count(f"{path}: journalctl cannot open it: ") == 1
    assert not reading.troubles


async def test_a_journal_that_cannot_be_opened_is_a_gap_and_does_not_stop_others(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    first = journal.write(10)
    assert await reading.read() == first
    journal.write(5)
    break_file(journal.path.rename(tmp_path / "system@0006-0001.journal~"))  # as journald does
    expected = JournalWriter(tmp_path).write(5)

    assert await reading.read() == expected

    assert reading.gaps == [(11, 16)]
    assert "journalctl cannot open it: No data available" in reading.texts


async def test_a_file_that_may_be_readable_later_is_a_trouble_until_it_is_read(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    first = journal.write(10)
    good = journal.path.read_bytes()
    need_new_journalctl(journal.path)
    expected = JournalWriter(tmp_path, "other").write(3)

    assert await reading.read() == expected
    (trouble,) = reading.troubles
    assert "journalctl cannot open it: Protocol not supported" in trouble
    assert check_journal(Options(path="journal", folder=str(tmp_path)))[1] == [
        f"journal: {trouble}"
    ]

    journal.path.write_bytes(good)
    await reading.restart()
    assert await reading.read() == first
    assert (reading.gaps, reading.troubles) == ([], [])


async def test_a_busy_journal_keeps_no_other_one_waiting(tmp_path: Path, reading: Reading) -> None:
    busy, quiet = JournalWriter(tmp_path), JournalWriter(tmp_path, "user-1000")
    busy.write(3)
    await reading.read()
    quiet.clock += 1_000_000_000
    quiet.program = "quiet"
    expected = [f"entry {number:08d}" for number in range(3)]
    quiet.write(3)
    shipped: list[str] = []
    async with asyncio.timeout(20):  # or until the busy one keeps it waiting for ever
        while len(shipped) < len(expected):
            busy.write(1)
            await reading.gather()
            text = b"".join(block.lines for block in reading.blocks).decode()
            shipped = re.findall(r" quiet\[7\]: (.*)\n", text)
            await asyncio.sleep(0.05)
    assert shipped == expected


async def test_many_small_journals_are_read_without_a_pause(
    tmp_path: Path, reading: Reading
) -> None:
    for number in range(12):
        JournalWriter(tmp_path, f"remote-{number}").write(3)
    await reading.list_files()
    began = time.monotonic()
    found = await reading.read()
    assert len(found) == 36
    assert time.monotonic() - began < 10  # it was a second for each of them


@pytest.mark.parametrize("count", [5, 30], ids=["fewer", "more"])
@pytest.mark.parametrize(
    ("clock", "boot", "is_known"),
    [
        pytest.param(-3_600_000_000, False, True, id="the clock is back"),
        pytest.param(0, True, True, id="another boot"),
        pytest.param(0, False, False, id="no sign of what is new"),
    ],
)
async def test_new_entries_of_a_journal_set_back_are_shipped_whatever_the_clock_says(
    journal: JournalWriter, reading: Reading, count: int, clock: int, boot: bool, is_known: bool
) -> None:
    journal.tick = 1000
    journal.write(10)
    saved, then = journal.path.read_bytes(), journal.clock
    old = journal.write(10)
    assert len(await reading.read()) == 20
    await reading.restart()
    journal.path.with_name("new").write_bytes(saved)
    journal.path.with_name("new").rename(journal.path)
    journal.clock = then + clock
    journal.tick = 10
    journal.boot = journal.boot[::-1] if boot else journal.boot
    expected = journal.write(count)

    found = await reading.read()

    assert found[-count:] == expected
    assert (len(found) > count) is not is_known
    assert not set(found) & set(old)
    assert reading.texts.count("was set back") == 1
    assert not reading.gaps
    await reading.restart()
    assert await reading.read() == []
    expected = journal.write(1)
    assert await reading.read() == expected


async def test_a_journal_whose_newest_file_is_gone_was_not_set_back(
    journal: JournalWriter, reading: Reading
) -> None:
    journal.archive()
    await reading.read()
    journal.path.unlink()
    for _ in range(2):
        assert await reading.read() == []
        await asyncio.sleep(1)
    assert "set back" not in reading.texts


@pytest.mark.parametrize(("wanted", "unwanted"), [("ERROR", ""), ("", "ERROR")])
async def test_filters_keep_or_drop_all_lines_of_an_entry(
    journal: JournalWriter, reading: Reading, wanted: str, unwanted: str
) -> None:
    journal.put(MESSAGE='ERROR request failed\nTraceback:\n\n  File "a.py"\nValueError: x')
    journal.put(MESSAGE="ok\n1.5 ms")
    await reading.read()
    rules = Rules.of([wanted] * bool(wanted), [unwanted] * bool(unwanted))

    blocks = ExpressionFilter(rules).filter(reading.blocks)

    lines = [line.strip() for line in b"".join(one.lines for one in blocks).splitlines()]
    first, *others = lines
    assert first.endswith(b": ERROR request failed" if wanted else b": ok")
    assert others == (
        [b"Traceback:", b"", b'File "a.py"', b"ValueError: x"] if wanted else [b"1.5 ms"]
    )


async def test_lost_entries_are_counted_and_named_with_their_times_in_the_status(
    journal: JournalWriter, reading: Reading
) -> None:
    journal.write(10)
    await reading.read()
    journal.write(4)
    path, entries = journal.archive()
    path.unlink()
    await reading.read()
    meter = AgentMeter(int)

    meter.count_notices(reading.notices)

    (text,) = meter.vacuumed
    assert f"entries 11 to {entries.stop - 1} of journal" in text
    assert "written between 2026-09-21T14:13:20Z and 2026-09-21T14:13:20Z, are lost" in text
    assert (meter.lost_entries, meter.lost) == (entries.stop - 11, {})


@pytest.mark.parametrize("content", [None, "", "uninitialized\n", "../..\n"])
async def test_a_machine_without_an_id_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    machine_id = tmp_path / "machine-id"
    if content is not None:
        machine_id.write_text(content)
    monkeypatch.setattr(headers, "_MACHINE_ID", machine_id)

    await (reading := Reading("")).read()

    assert f"{machine_id} has no machine id, so" in reading.texts
    assert "give --journal-directory" in reading.texts


async def test_a_journal_is_read_on_under_another_name_and_those_elsewhere_are_left_alone(
    journal: JournalWriter, reading: Reading, tmp_path: Path
) -> None:
    journal.write(10)
    await reading.read()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    JournalWriter(elsewhere).write(5)
    (link := tmp_path / "link").symlink_to(tmp_path)
    expected = journal.write(3)

    await reading.restart(path="journal:elsewhere", folder=str(elsewhere))
    assert len(await reading.read()) == 5
    await reading.restart(path="journal:link", folder=str(link))

    assert await reading.read() == expected
    assert "was followed as journal; it is read on from entry 11" in reading.texts
    assert not reading.gaps
    assert " is gone" not in reading.texts
    assert reading.blocks[-1].section.path == "journal:link"


async def test_little_is_read_of_a_journal_if_little_is_asked_for(
    journal: JournalWriter, reading: Reading
) -> None:
    journal.write(3000)
    await reading.list_files()
    assert reading.source is not None

    gathered = [await reading.source.gather(1024) for _ in range(10)]
    await reading.restart()

    sizes = [sum(len(one.lines) for one in blocks) for blocks in gathered]
    assert 0 < max(sizes) < 4096


async def test_a_journal_is_not_read_to_its_end_before_another_one(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_TURN", 0.0)
    large, small = JournalWriter(tmp_path), JournalWriter(tmp_path, "small")
    small.clock += 1_000_000_000
    large.write(3000)
    small.write(3)
    await reading.list_files()

    for _ in range(10):
        await reading.gather(1024)
    await reading.restart()

    ends = {one.section.span.file_id: one.section.span.end for one in reading.blocks}
    assert 4 in ends.values()
    assert max(ends.values()) < 3000
