"""The oracle of random programs: a log, all that was written to it, and what an agent must ship.

A generation is what a writer wrote to one file from its creation, or truncation, to the next. Each
must be shipped under one file id, from 0 on without a hole, after all older ones, and whole, unless
it is excused: the model knows why it could not be. If an excused generation that the agent knew is
not shipped, the agent must report it. Of agents the model knows only when they scanned and
restarted, and what they reported.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shipper.sources.block import Block
from shipper.sources.files.identity import MOST_IN_UNIT
from shipper.sources.files.paths import Compression
from tests.shipper.host import SECOND, pack, packed
from tests.shipper.shipped import contents, shown

CURRENT = "current.log"
KEPT = 4
FORMS = tuple(Compression)
ENDINGS = ("", *(form.value for form in FORMS))
MODES = (0o600, 0o640, 0o644, 0o660, 0o664)  # with each of which its owner writes on, root or not
LENGTHS = (0, 3, 40, 230, 600)
BLOCK = 4096  # of file systems: holes are as large


@dataclass(frozen=True)
class Layout:
    """How a log is laid out: `live` is the path that is followed, `file` that of the writer.

    `rotated` names a rotated file by its number, the newest is 1, and by how many were rotated
    before it. `shifts` says that the number is in the name, `copies` that files are copied and
    truncated as well; if not, they are moved to another folder.
    """

    rotated: Callable[[int, int], str]
    live: str = "app.log"
    file: str = "app.log"
    pattern: str = "app.log"
    shifts: bool = True
    copies: bool = True

    @property
    def patterns(self) -> tuple[str, ...]:
        """What the agent is to follow."""
        return self.pattern, CURRENT


LAYOUTS = {
    "numbers": Layout(lambda number, _: f"app.log.{number}"),
    "extension": Layout(lambda number, _: f"app.{number}.log"),
    "extension, shown": Layout(lambda number, _: f"app.{number}.log", pattern="app*.log"),
    "olddir": Layout(lambda number, _: f"old/app.log.{number}", copies=False),
    "dates": Layout(lambda _, count: f"app.log-2026{count:04}", shifts=False),
    "svlogd": Layout(
        lambda _, count: f"@4000000065a1b2c3{count:08x}.s",
        *("current", "current", "current"),
        shifts=False,
    ),
    "pod": Layout(
        lambda _, count: f"pods/0.log.20260109-{count:06}", file="pods/0.log", shifts=False
    ),
}

FILE_ACTIONS = {
    "write": 12,
    "write_part": 4,
    "write_late": 2,
    "backdate": 1,
    "rename": 4,
    "copy_truncate": 2,
    "truncate": 1,
    "delete": 1,
    "recreate": 1,
    "link_symbolically": 1,
    "change_mode": 1,
    "compress": 4,
    "leave_hole": 1,
    "allocate": 1,
}
"""How often what happens to files; each is a method of `Model` that takes an amount of 0 to 4."""


@dataclass(slots=True)
class Generation:
    """What was written from one beginning to the next.

    `excused`: it need not be shipped whole. `opened`: the running agent has seen it, and holds it
    open. `unlinked`: it has no name any more. `found`: the agent's saved positions have it.
    `begun`: the stream has its first line. `is_gone`: the file that had it has not any more.
    `is_missed`: that happened when the agent knew it and did not hold it open. `is_doubtful`: its
    file has a time from before the agent knew of it. `renamed`: it was rotated by renaming.
    `allocated`: its file is larger than what was written, and holds NULs behind it. `rewritten`: it
    was written over another one in place, and may not be distinguished from it after a restart.
    """

    content: bytes = b""
    excused: bool = False
    opened: bool = False
    unlinked: bool = False
    found: bool = False
    begun: bool = False
    allocated: bool = False
    is_gone: bool = False
    is_missed: bool = False
    is_doubtful: bool = False
    renamed: bool = False
    rewritten: bool = False

    def begins_with(self, content: bytes) -> bool:
        """Whether this may have been shipped of it, with a few NULs behind allocated content."""
        return (self.content + bytes(MOST_IN_UNIT * self.allocated)).startswith(content)

    @property
    def known(self) -> bool:
        """Whether an agent that starts now has a position of it."""
        return self.found or self.begun

    def lose(self) -> None:
        """Take note that its file has gone, or has other content."""
        self.is_gone = True
        self.is_missed |= self.known and not self.opened


class Model:
    """A log of a folder, rotated as its layout says, with links beside it that show it."""

    def __init__(self, folder: Path, clock: Callable[[], int], layout: Layout) -> None:
        """`clock` gives nanoseconds since the epoch; files are stamped with it."""
        self.folder = folder
        self.layout = layout
        for one in (layout.file, layout.rotated(1, 1)):
            (folder / one).parent.mkdir(exist_ok=True)
        if layout.live != layout.file:
            (folder / layout.live).symlink_to(layout.file)
        self.names: list[str] = []
        self.rotations = 0
        self.generations: list[Generation] = [Generation()]
        self.siblings: list[Generation] = []
        self.family_known = False
        self._clock = clock
        self._number = 0
        self._fresh = True
        self._is_clock_back = False
        self._is_folder_known = False
        self._is_live_known = False

    @property
    def now(self) -> Generation:
        """The generation that is, or will be, at the live path."""
        return self.generations[-1]

    # what happens to files

    def write(self, amount: int) -> None:
        for number in range(amount + 1):
            self._append(self._text(amount + number) + b"\n")

    def write_part(self, amount: int) -> None:
        self._append(self._text(amount))

    def write_late(self, amount: int) -> None:
        """Write to the file that was rotated last, as a process that still has it open."""
        last = self.siblings[0] if self.siblings else None
        if last and last.renamed and last.known and not last.excused and self._path(1).exists():
            self._append(self._text(amount) + b"\n", 1)

    def backdate(self, amount: int) -> None:
        """Give a rotated file the time of some hours ago."""
        if (path := self._plain_sibling(amount)) is not None:
            hours = path.stat().st_mtime_ns - (amount + 1) * 3600 * SECOND
            os.utime(path, ns=(hours, hours))
            self.siblings[self.names.index(str(path.relative_to(self.folder)))].is_doubtful = True

    def rename(self, _: int) -> None:
        if self._exists():
            self._shift()
            self._path().rename(self._path(1))
            self.now.renamed = True
            self._rotated()

    def copy_truncate(self, amount: int) -> None:
        self.copy(amount)
        self.truncate_copied(amount)

    def copy(self, _: int) -> None:
        """Begin a copytruncate; nothing may be written before `truncate_copied` ends it."""
        self.begin_to_copy(0)
        self.finish_copying(0)

    def begin_to_copy(self, amount: int) -> None:
        """Write a part of a copy; `finish_copying` and `truncate_copied` must follow next."""
        if not self.layout.copies:
            self.rename(amount)
        elif self._exists():
            self._shift()
            whole = self._path().read_bytes()
            self._path(1).write_bytes(whole[: len(whole) * amount // 4])
            self._stamp(self._path(1))

    def finish_copying(self, _: int) -> None:
        if self._exists() and self.layout.copies:
            with self._path(1).open("r+b") as file:
                file.write(self._path().read_bytes())
            self._stamp(self._path(1))

    def truncate_copied(self, _: int) -> None:
        if self._exists() and self.layout.copies:
            self._empty()
            self.now.is_gone = True
            self.now.opened = False
            self._rotated()

    def leave_hole(self, amount: int) -> None:
        """Write behind a hole, as a program that does not append after a truncation."""
        if self._exists() and not self.now.allocated:
            size = BLOCK * (len(self.now.content) // BLOCK + 2)
            hole = bytes(size - len(self.now.content))
            self._append(hole + self._text(amount) + b"\n", hole_until=size)

    def allocate(self, amount: int) -> None:
        """Have space for what is to be written: the file is larger, and holds NULs."""
        if self._exists():
            with self._path().open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, len(self.now.content) + LENGTHS[amount] + 10)
            self._stamp(self._path())
            self.now.allocated = True

    def rewrite(self, amount: int) -> bool:
        """Write the file again in place, with another byte in its middle; False if it has no line.

        The agent must have read the file, and must scan before more is written: it would count as
        grown.
        """
        content = self.now.content
        if not (self._exists() and b"\n" in content[:-1]):
            return False
        self._number += 1
        end = content.rfind(b"\n", 0, len(content) * (amount + 1) // 5)
        end = end if end > 0 else content.find(b"\n")
        self._path().write_bytes(b"")
        self.now.lose()
        self.now.excused = True
        self._begin()
        self.now.rewritten = True
        self._append(content[: end - 1] + b"%c" % (33 + self._number % 90) + content[end:])
        return True

    def truncate(self, _: int) -> None:
        if self._exists():
            self._empty()
            self.now.lose()
            self.now.excused = True
            self._begin()

    def delete(self, _: int) -> None:
        if self._exists():
            self._path().unlink()
            self.now.unlinked = True
            self.now.lose()
            self.now.excused = not self.now.opened
            self._begin()

    def recreate(self, amount: int) -> None:
        self.delete(amount)
        self.write(amount)

    def link_symbolically(self, _: int) -> None:
        if not (self.folder / CURRENT).is_symlink():
            (self.folder / CURRENT).symlink_to(self.layout.file)

    def change_mode(self, amount: int) -> None:
        if self._exists():
            self._path().chmod(MODES[amount])

    def compress(self, amount: int) -> None:
        """Compress a rotated sibling to any of the forms, at once."""
        if (original := self._plain_sibling(amount)) is not None:
            pack(original, _form(amount))
            self.siblings[self.names.index(str(original.relative_to(self.folder)))].is_gone = True

    def begin_to_compress(self, amount: int) -> None:
        """Write a part of a sibling's compressed file; `compress` must follow before a rotation."""
        if (original := self._plain_sibling(amount)) is not None:
            data = packed(original.read_bytes(), _form(amount))
            path = original.with_name(original.name + _form(amount).value)
            path.write_bytes(data[: len(data) * amount // 4])

    def set_clock_back(self) -> None:
        """Take note that from now on files get times from before the last ones."""
        self._is_clock_back = True

    # what the agent does

    def may_have_scanned(self) -> None:
        """Excuse what the agent, if this was its first scan, has passed over for good."""
        for number, sibling in enumerate(self.siblings, 1):
            # on a first start whatever was rotated is older than we are
            sibling.excused |= not self.family_known
            is_unknown = not (sibling.known or sibling.opened)
            # nothing leads to another folder but the first file that is moved to it
            sibling.excused |= is_unknown and not (self.layout.copies or self._is_folder_known)
            # its time says that it is old, and there is no file that its name is newer than
            older = any(s.known and s.renamed and not s.is_gone for s in self.siblings[number:])
            sibling.excused |= sibling.is_doubtful and is_unknown and not older
        if self._fresh and not any(s.begun for s in self.siblings):
            # nothing is left of what we knew, so only times distinguish old files from new ones
            for sibling in self.siblings:
                sibling.excused |= not sibling.found

    def scanned(self) -> None:
        """Note that the agent has scanned the folder as it is now, and holds open what it found."""
        self.may_have_scanned()
        self.family_known |= self._exists()
        self._is_live_known |= self._exists()
        self._is_folder_known |= any(s.known and not s.is_gone for s in self.siblings)
        self._fresh = False
        for generation in (*self.siblings, self.now):
            generation.found |= bool(generation.content) and not generation.excused
            generation.opened = bool(generation.content) or generation is not self.now
        self.now.opened &= self._exists()

    def restarted(self, stored: Sequence[Block], *, saved: bool) -> None:
        """Note that the agent starts again with what it finds in the stream.

        `saved`: its positions were saved as well, with files that it had found and not begun.
        """
        # by all that is stored of a file: one that was rewritten in place may begin as it did
        begun = contents(stored, []).values()
        for generation in self.generations:
            generation.found &= saved
            generation.begun = any(one and generation.begins_with(one) for one in begun)
            generation.opened = False
            generation.excused |= generation.unlinked
            generation.excused |= generation.rewritten and not generation.known
            generation.is_doubtful |= self._is_clock_back
            # no scan came, or its position was lost, and it may be unknown by now
            if self._fresh or not saved:
                generation.is_missed &= generation.known
            if generation.unlinked:
                generation.lose()
        self.family_known = any(g.found or g.begun for g in self.generations)
        self._is_folder_known = False
        self._is_live_known &= saved
        self._fresh = True

    # what must have been shipped

    def judge(self, blocks: Iterable[Block], reports: Sequence[str]) -> list[str]:
        """Return what is wrong with all blocks that were stored, once the agent could ship all.

        `reports` are what the agent warned of.
        """
        faults: list[str] = []
        shipped = self._owners(contents(blocks, faults), faults)
        # where the clock was set back, a file from before our time may seem to be new, and what a
        # glob shows is shipped although it is unknown what it was rotated from
        is_loose = self._is_clock_back or self.layout.pattern != self.layout.live
        excused = {
            number
            for number, one in enumerate(self.generations)
            if one.excused and (is_loose or one.is_doubtful)
        }
        due = [number for number in shipped if number not in excused]
        if due != sorted(due):
            faults.append(f"generations came in the order {due}")
        for number, generation in enumerate(self.generations):
            content = shipped.get(number, b"")
            self._judge_generation(number, generation, content, reports, faults)
        told = [(lost, report) for report in reports if (lost := _BEHIND.search(report))]
        wrong = [report for lost, report in told if not self._has_lost(int(lost[1]))]
        return [*faults, *(f"nothing was lost: {report}" for report in wrong)]

    def _owners(self, contents: Mapping[str, bytes], faults: list[str]) -> dict[int, bytes]:
        shipped: dict[int, bytes] = {}
        for file, content in contents.items():
            found = [n for n, g in enumerate(self.generations) if g.begins_with(content)]
            # a file that was rewritten may begin as it did before
            new = [n for n in found if n not in shipped]
            if not (found and content):
                faults.append(f"{file}: {shown(content)} was never written to one file")
            elif not new:
                faults.append(f"generation {found[0]} came again as {file}")
            else:
                shipped[new[0]] = content
        return shipped

    def _has_lost(self, offset: int) -> bool:
        gone = (generation for generation in self.generations if generation.is_gone)
        return any(offset <= len(generation.content) for generation in gone)

    def _judge_generation(
        self,
        number: int,
        generation: Generation,
        content: bytes,
        reports: Sequence[str],
        faults: list[str],
    ) -> None:
        whole = generation.content
        # of a very long unfinished line of a live file some pieces may have been shipped
        # what a glob shows counts as live as long as the live path is unknown
        is_shown = self.layout.pattern != self.layout.live
        live = generation is self.now or (is_shown and not self._is_live_known)
        due = whole.rfind(b"\n") + 1 if live else len(whole)
        lack = (
            f"generation {number} lacks {shown(whole[len(content) : due])} at byte {len(content)}"
        )
        if len(content) >= due:
            return
        if not generation.excused:
            faults.append(lack)
        elif generation.is_missed and not any(_reports(one, len(content)) for one in reports):
            faults.append(f"{lack}, and nothing was said")

    def _exists(self) -> bool:
        return self._path().exists()

    def _path(self, number: int = 0) -> Path:
        return self.folder / (self.names[number - 1] if number else self.layout.file)

    def _text(self, amount: int) -> bytes:
        self._number += 1
        # fewer bytes than the tail's are not enough to recognise a copy of a file that is gone
        least = 0 if self.now.content else 70
        # where lines are joined, each third one begins a record
        blank = b" " if self._number % 3 else b""
        return b"%b%d %b" % (blank, self._number, b"x" * max(least, LENGTHS[amount % len(LENGTHS)]))

    def _append(self, data: bytes, number: int = 0, hole_until: int = 0) -> None:
        written, path = self.siblings[number - 1] if number else self.now, self._path(number)
        size = len(written.content)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(hole_until or size)
            file.write(data[max(0, hole_until - size) :])
        self._stamp(path)
        written.content += data

    def _empty(self) -> None:
        os.truncate(self._path(), 0)
        self._stamp(self._path())

    def _stamp(self, path: Path) -> None:
        os.utime(path, ns=(self._clock(), self._clock()))

    def _plain_sibling(self, amount: int) -> Path | None:
        # a few compressed NULs do not show whether they were allocated
        named = zip(self.names, self.siblings, strict=False)
        there = [
            path
            for name, sibling in named
            if not sibling.allocated and (path := self.folder / name).exists()
        ]
        return there[amount % len(there)] if there else None

    def _shift(self) -> None:
        self.rotations += 1
        before = self.names
        self.names = [self.layout.rotated(1, self.rotations), *before]
        if self.layout.shifts:
            count = len(self.names)
            self.names = [self.layout.rotated(number, 0) for number in range(1, count + 1)]
            for name, to in reversed(list(zip(before, self.names[1:], strict=True))):
                for ending in ENDINGS:
                    if (path := self.folder / f"{name}{ending}").exists():
                        path.rename(self.folder / f"{to}{ending}")
        if len(self.names) > KEPT:
            dropped, generation = self.names.pop(), self.siblings.pop()
            for ending in ENDINGS:
                (self.folder / f"{dropped}{ending}").unlink(missing_ok=True)
            generation.unlinked = True
            generation.lose()
            generation.excused |= not generation.opened

    def _rotated(self) -> None:
        self.siblings.insert(0, self.now)
        self._begin()

    def _begin(self) -> None:
        self.generations.append(Generation())


_BEHIND = re.compile("behind byte ([0-9]+) ")


def _reports(report: str, offset: int) -> bool:
    """Whether a report is of a file of which so many bytes were read."""
    if lost := _BEHIND.search(report):
        return int(lost[1]) == offset
    return "not read" in report or "left unread" in report


def _form(amount: int) -> Compression:
    return FORMS[amount % len(FORMS)]
