"""The oracle of random programs on journals: what was written, deleted, and must be shipped.

Each entry must be shipped once, in order, unless its file was deleted before. A deleted entry that
was not shipped must be a gap, if the agent knew the journal.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from receiver.consume.judging import judge
from shipper.sources.block import Block
from tests.support.journals import JournalWriter

_ENTRY = re.compile(rb" (j[0-9]+)\[7\]: entry ([0-9]+)\n")
_HOUR = 3_600_000_000  # microseconds

JOURNAL_ACTIONS = {
    "write_entries": 6,
    "rotate_journal": 1,
    "vacuum": 1,
    "vacuum_soon": 2,
    "set_journal_back": 1,
    "make_journal_anew": 1,
}
"""How often what happens to journals; each is a method that takes an amount of 0 to 4."""


@dataclass(slots=True)
class _Journal:
    """`deleted` has the entries whose file was deleted, `excused` those that no agent knew."""

    writer: JournalWriter
    archives: list[tuple[Path, range]] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)
    known: bool = False

    def delete(self, archives: Iterable[tuple[Path, range]]) -> None:
        for path, entries in archives:
            path.unlink()
            self.deleted.update(entries)
            self.excused.update(() if self.known else entries)
        self.archives = [one for one in self.archives if one[0].exists()]


@dataclass(slots=True)
class _Shipped:
    entries: list[int] = field(default_factory=list)
    missed: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


class JournalModel:
    """The journals of a folder, of which the last one is written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._journals: list[_Journal] = []
        self._begin()

    def _begin(self) -> None:
        writer = JournalWriter(self.folder)
        writer.program = f"j{len(self._journals)}"
        self._journals.append(_Journal(writer))
        writer.write(1)

    @property
    def _now(self) -> _Journal:
        return self._journals[-1]

    def write_entries(self, amount: int) -> None:
        self._now.writer.write(1 + 10 * amount)

    def rotate_journal(self, _: int) -> None:
        self._now.archives.append(self._now.writer.archive())

    def vacuum(self, amount: int) -> None:
        """Delete the oldest files of a journal."""
        journal = self._journals[amount % len(self._journals)]
        journal.delete(journal.archives[: amount + 1])

    def vacuum_soon(self, amount: int) -> None:
        """Delete a file that an agent has hardly had time to read."""
        self.write_entries(amount)
        self.rotate_journal(0)
        self._now.delete(self._now.archives[-1:])

    def set_journal_back(self, amount: int) -> None:
        """Set the machine's clock back, at a boot."""
        self._now.writer.clock -= amount * _HOUR
        self._now.writer.boot = self._now.writer.boot[::-1]

    def make_journal_anew(self, amount: int) -> None:
        """Put the journal's file aside, as journald does with a damaged one."""
        last = self._now.writer
        last.path.rename(self.folder / f"system@{last.program}.journal~")
        self._begin()
        self._now.writer.clock = last.clock
        self.write_entries(amount)

    def is_shipped(self, blocks: Iterable[Block]) -> bool:
        """Whether the last entry of each journal is shipped; the agent knows these then."""
        ends = {one: entries[-1] for one, entries in _list_entries(blocks) if entries}
        is_so = all(
            ends.get(one.writer.program, -1) == one.writer.written for one in self._journals
        )
        for one in self._journals:
            one.known |= is_so
        return is_so

    def judge(self, blocks: Sequence[Block]) -> list[str]:
        """Return what is wrong with all blocks that were stored, once the agent could ship all."""
        found = {one.writer.program: _Shipped() for one in self._journals}
        owners: dict[str, _Shipped] = {}
        for block in blocks:
            for name, entries in _list_entries([block]):
                owners[block.section.span.file_id] = found[name]
                found[name].files.add(block.section.span.file_id)
                found[name].entries += entries
        faults, ends = list[str](), dict[str, int]()
        for block in blocks:
            span = block.section.span
            anomaly = judge(ends.get(span.file_id), block.section, "web01", 1).anomaly
            ends[span.file_id] = span.end
            if anomaly and not anomaly.kind.is_gap:
                faults.append(f"{anomaly}")
            elif anomaly:
                owners[span.file_id].missed.update(range(anomaly.start, anomaly.end))
        for journal in self._journals:
            faults += _compare(journal, found[journal.writer.program])
        return faults


def _compare(journal: _Journal, shipped: _Shipped) -> list[str]:
    faults, name = [], journal.writer.program
    everything = set(range(1, journal.writer.written + 1))
    missing = everything - set(shipped.entries)
    if shipped.entries != sorted(set(shipped.entries)):
        faults.append(f"{name}: entries came again, or not in order: {shipped.entries}")
    if len(shipped.files) > 1:
        faults.append(f"{name} was shipped as {len(shipped.files)} files")
    if lost := missing - journal.deleted:
        faults.append(f"{name}: entries {sorted(lost)} are there, and were not shipped")
    if unnamed := missing - shipped.missed - journal.excused:
        faults.append(f"{name}: no gap has the entries {sorted(unnamed)}, which were deleted")
    if wrong := shipped.missed - missing:
        faults.append(f"{name}: a gap has the entries {sorted(wrong)}, which were shipped")
    return faults


def _list_entries(blocks: Iterable[Block]) -> Iterable[tuple[str, list[int]]]:
    """Yield the journal and the entries of each block with lines."""
    for block in blocks:
        found = _ENTRY.findall(block.lines)
        for name in dict.fromkeys(name for name, _ in found):
            yield name.decode(), [int(number) + 1 for one, number in found if one == name]
