"""Entries that anybody may write, in a real journal: journalctl is the oracle of their lines."""

import json
import tracemalloc
from pathlib import Path

import pytest

from shipper.sources.journal.rules import EntryRules
from tests.shipper.sources.journal.reading import Reading
from tests.support.journals import JournalWriter, needs_journal, show

pytestmark = needs_journal

CURSOR = "__CURSOR=s=00;i=7;b=1;m=1;t=1;x=1"
FORGED = f"a\n\n{CURSOR}\n__REALTIME_TIMESTAMP=1\nMESSAGE=forged\n\n{CURSOR}"
VALUES: list[str | bytes] = [
    *("", "=", "a=b=c", "\t", 'quoted "text" \\ and \\n', "é€😀", "x" * (1024 * 1024 + 1)),
    *("two\nlines\n", "\n", "\n\n", FORGED, f"same line {CURSOR}"),
    *(b"\0", b"a\0b", b"\x1b[31mred", b"\x7f", "\x80", "\x9f", "\xa0", "\ufdd0", "\ufffe"),
    *("\U0001fffe", "\ufffd", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\r", b"\x01\n"),
]


UNIT = ("_SYSTEMD_UNIT", "a.service")
ENTRIES = [
    *([("MESSAGE", value), ("OTHER", value), UNIT] for value in VALUES),
    [UNIT, *(("SAME", f"{n}") for n in range(100))],
    [*(("MESSAGE", value) for value in VALUES), UNIT],
    [("MESSAGE", "first"), ("OTHER", "x"), ("MESSAGE", "second"), UNIT],
]


@pytest.mark.parametrize("rules", [EntryRules(), EntryRules(units=("*.service",))])
async def test_any_fields_are_shipped_as_journalctl_shows_them_as_json(
    tmp_path: Path, rules: EntryRules
) -> None:
    JournalWriter(tmp_path).put_all(*ENTRIES)
    reading = Reading(tmp_path, is_json=True, rules=rules)
    reading.longest = 4 * 1024 * 1024

    await reading.read()

    shipped = b"".join(block.lines for block in reading.blocks).splitlines()
    assert list(map(json.loads, shipped)) == list(
        map(json.loads, show(tmp_path, "json").splitlines())
    )
    assert (reading.gaps, reading.texts.count("\n")) == ([], 0)


async def test_any_message_is_its_own_lines_and_none_is_taken_for_another_entry(
    tmp_path: Path,
) -> None:
    JournalWriter(tmp_path).put_all(*ENTRIES)
    reading = Reading(tmp_path)

    await reading.read()

    shipped = b"".join(block.lines for block in reading.blocks)
    starts = [line for line in shipped.split(b"\n") if line.startswith(b"20")]
    assert len(starts) == len(ENTRIES) - 1  # one has no message
    assert show(tmp_path, "short-iso-precise").splitlines()[-1] == starts[-1]
    assert list(reading.files.values()) == [len(ENTRIES) + 1]
    assert "is longer than --max-line; 48 bytes are cut off" in reading.texts


async def test_an_entry_of_any_bytes_needs_bounded_memory_as_json(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.put(MESSAGE=b"\xff" * (15 * 1024 * 1024))
    writer.write(1)
    reading = Reading(tmp_path, is_json=True)
    tracemalloc.start()

    await reading.read()

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "is longer than --max-line" in reading.texts
    assert [len(block.lines) > 1000 for block in reading.blocks] == [True, False]
    assert peak < 160 * 1024 * 1024  # each byte is four in an array
