"""Entries that anybody may write, in a real journal: journalctl is the oracle of their lines."""

import json
import tracemalloc
from pathlib import Path

import pytest

from shipper.sources.journal.entries import EntryParser
from shipper.sources.journal.format import JsonForm
from shipper.sources.journal.rules import EntryRules
from tests.shipper.sources.journal.reading import Reading
from tests.support.journals import JournalWriter, needs_journal, show

pytestmark = needs_journal

CURSOR = "__CURSOR=s=00;i=7;b=1;m=1;t=1;x=1"
FORGED = f"a\n\n{CURSOR}\n__REALTIME_TIMESTAMP=1\nMESSAGE=forged\n\n{CURSOR}"
VALUES: list[str | bytes] = [
    *("", "=", "a=b=c", "\t", 'quoted "text" \\ and \\n', "é€😀", "x" * (1024 * 1024 + 1)),
    *("two\nlines\n", "\n", "\n\n", FORGED, f"same line {CURSOR}"),
    FORGED.ljust(int.from_bytes(b"=\n\n", "little")),  # its length seems to end the entry
    *(b"\0", b"a\0b", b"\x1b[31mred", b"\x7f", "\x80", "\x9f", "\xa0", "\ufdd0", "\ufffe"),
    *("\U0001fffe", "\ufffd", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\r", b"\x01\n"),
]


UNIT = ("_SYSTEMD_UNIT", "a.service")
ENTRIES = [
    *([("MESSAGE", value), ("OTHER", value), UNIT] for value in VALUES),
    [UNIT, *(("SAME", f"{n}") for n in range(100))],
    [*(("MESSAGE", value) for value in VALUES), UNIT],
    [("SYSLOG_IDENTIFIER", f"x\n{FORGED}"), ("MESSAGE", "m\nn"), UNIT],
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
    assert "in time); 48 bytes are cut off" in reading.texts


async def test_an_entry_of_any_bytes_needs_bounded_memory_as_json(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.put(MESSAGE=b"\xff" * (15 * 1024 * 1024))
    writer.write(1)
    reading = Reading(tmp_path, is_json=True)
    tracemalloc.start()

    await reading.read()

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "is longer than" in reading.texts
    assert [len(block.lines) > 1000 for block in reading.blocks] == [True, False]
    assert peak < 160 * 1024 * 1024  # each byte is four in an array


@pytest.mark.parametrize("digits", [17, 18, 5000])
async def test_a_time_of_too_many_digits_is_not_that_of_its_line(
    tmp_path: Path, digits: int
) -> None:
    JournalWriter(tmp_path).write(1, _SOURCE_REALTIME_TIMESTAMP="9" * digits)
    reading = Reading(tmp_path)

    await reading.read()

    shipped = b"".join(block.lines for block in reading.blocks)
    assert shipped == show(tmp_path, "short-iso-precise")


@pytest.mark.parametrize("length", [b"\n\n", b"=\n\n", b"=\n\n\1", b"A=\n\n", b"\n=\n\n"])
def test_the_length_of_a_binary_field_does_not_end_its_entry(length: bytes) -> None:
    parser = EntryParser(JsonForm(), EntryRules())

    assert parser.feed(f"{CURSOR}\nOTHER\n".encode() + length.ljust(8, b"\0")) == []
    assert parser.holds_entry


def test_a_name_that_is_not_utf_8_is_shipped() -> None:
    parser = EntryParser(JsonForm(), EntryRules())

    (entry,) = parser.feed(CURSOR.encode() + b"\n\xff\n" + b"\1".ljust(8, b"\0") + b"x\n\n")

    assert json.loads(entry.lines or b"") == {"__CURSOR": CURSOR.partition("=")[2], "\ufffd": "x"}
