"""A log in a folder, what was ever written to it, and what an agent must therefore ship: the law of random programs.

A generation is what a writer wrote to one file from its creation, or truncation, to the next. Each must be shipped under
one file id, from 0 on without a hole, after all older ones, and whole - unless it is excused: the model knows why it could
not be. Excuses are given here and nowhere else. Knows nothing of agents but when they looked and when they restarted.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shipper.tail.paths import Packing
from shipper.tail.reader import Block
from tests.shipper.host import pack, packed
from tests.shipper.shipped import contents, shown

LIVE = "app.log"
CURRENT = "current.log"
PATTERNS = (LIVE, CURRENT)
KEPT = 4
FORMS = tuple(Packing)
ENDINGS = ("", *(form.value for form in FORMS))
MODES = (0o600, 0o640, 0o644, 0o660, 0o664)  # with each of which its owner writes on, root or not
LENGTHS = (0, 3, 40, 230, 600)
BLOCK = 4096  # of file systems: holes are as large

FILE_ACTIONS = {
    "write": 12,
    "write_part": 4,
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

    `excused`: need not be shipped whole. `opened`: the running agent has seen it, and holds it open. `unlinked`: it has no
    name any more. `found`: the agent's saved positions remember it.
    `begun`: the stream has its first line. `allocated`: its file is larger than what was written, and holds NULs behind it.
    """

    content: bytes = b""
    excused: bool = False
    opened: bool = False
    unlinked: bool = False
    found: bool = False
    begun: bool = False
    allocated: bool = False


class Model:
    """The log `app.log` of a folder, rotated to `app.log.1` and on, with names beside it that show the same file."""

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        """`clock` gives nanoseconds since the epoch; files are stamped with it."""
        self.folder = folder
        self.generations: list[Generation] = [Generation()]
        self.siblings: list[Generation] = []
        self.family_known = False
        self._clock = clock
        self._number = 0
        self._fresh = True

    @property
    def now(self) -> Generation:
        """The generation that stands, or will stand, at the live path."""
        return self.generations[-1]

    # what happens to files

    def write(self, amount: int) -> None:
        for number in range(amount + 1):
            self._append(self._text(amount + number) + b"\n")

    def write_part(self, amount: int) -> None:
        self._append(self._text(amount))

    def rename(self, _: int) -> None:
        if self._exists():
            self._shift()
            self._path().rename(self._path(1))
            self._rotated()

    def copy_truncate(self, amount: int) -> None:
        self.copy(amount)
        self.truncate_copied(amount)

    def copy(self, _: int) -> None:
        """Begin a rotation by copytruncate; nothing may be written before `truncate_copied` ends it."""
        self.begin_to_copy(0)
        self.finish_copying(0)

    def begin_to_copy(self, amount: int) -> None:
        """Write a part of a copy; `finish_copying` and `truncate_copied` must follow before anything else."""
        if self._exists():
            self._shift()
            whole = self._path().read_bytes()
            self._path(1).write_bytes(whole[: len(whole) * amount // 4])
            self._stamp(self._path(1))

    def finish_copying(self, _: int) -> None:
        if self._exists():
            with self._path(1).open("r+b") as file:
                file.write(self._path().read_bytes())
            self._stamp(self._path(1))

    def truncate_copied(self, _: int) -> None:
        if self._exists():
            self._empty()
            self.now.opened = False
            self._rotated()

    def leave_hole(self, amount: int) -> None:
        """Write behind a hole, as a program does that does not append after its file was truncated."""
        if self._exists() and not self.now.allocated:
            size = BLOCK * (len(self.now.content) // BLOCK + 2)
            self._append(bytes(size - len(self.now.content)) + self._text(amount) + b"\n", size)

    def allocate(self, amount: int) -> None:
        """Have space for what is to be written: the file is larger, and holds NULs."""
        if self._exists():
            with self._path().open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, len(self.now.content) + LENGTHS[amount] + 10)
            self._stamp(self._path())
            self.now.allocated = True

    def write_anew(self, amount: int) -> bool:
        """Write the file again in place, with another byte in its middle; return False where it has no line.

        The agent must have read the file, and must look at it before more is written: it would count as grown.
        """
        content = self.now.content
        if not (self._exists() and b"\n" in content[:-1]):
            return False
        self._number += 1
        end = content.rfind(b"\n", 0, len(content) * (amount + 1) // 5)
        end = end if end > 0 else content.find(b"\n")
        self._path().write_bytes(b"")
        self.now.excused = True
        self._begin()
        self._append(content[: end - 1] + b"%c" % (33 + self._number % 90) + content[end:])
        return True

    def truncate(self, _: int) -> None:
        if self._exists():
            self._empty()
            self.now.excused = True
            self._begin()

    def delete(self, _: int) -> None:
        if self._exists():
            self._path().unlink()
            self.now.unlinked = True
            self.now.excused = not self.now.opened
            self._begin()

    def recreate(self, amount: int) -> None:
        self.delete(amount)
        self.write(amount)

    def link_symbolically(self, _: int) -> None:
        if not (self.folder / CURRENT).is_symlink():
            (self.folder / CURRENT).symlink_to(LIVE)

    def change_mode(self, amount: int) -> None:
        if self._exists():
            self._path().chmod(MODES[amount])

    def compress(self, amount: int) -> None:
        """Compress a rotated sibling to any of the forms, at once."""
        if (original := self._plain_sibling(amount)) is not None:
            pack(original, _form(amount))

    def begin_to_compress(self, amount: int) -> None:
        """Write a part of what a sibling is compressed to; `compress` must follow before it is rotated again."""
        if (original := self._plain_sibling(amount)) is not None:
            data = packed(original.read_bytes(), _form(amount))
            path = original.with_name(original.name + _form(amount).value)
            path.write_bytes(data[: len(data) * amount // 4])

    # what the agent does

    def may_have_looked(self) -> None:
        """Excuse what the agent, if this was its first look, has passed over for good."""
        for sibling in self.siblings:
            # on a first start whatever was rotated is older than we are
            sibling.excused |= not self.family_known
        if self._fresh and not any(s.begun for s in self.siblings):
            # nothing is left of what we knew, so there is only time to tell old files from new ones
            for sibling in self.siblings:
                sibling.excused |= not sibling.found

    def looked(self) -> None:
        """Take note that the agent has looked at the folder as it is now, and holds open what it found."""
        self.may_have_looked()
        self.family_known |= self._exists()
        self._fresh = False
        for generation in (*self.siblings, self.now):
            generation.found |= bool(generation.content)
            generation.opened = bool(generation.content) or generation is not self.now
        self.now.opened &= self._exists()

    def restarted(self, stored: Sequence[Block], *, saved: bool) -> None:
        """Take note that the agent begins anew from what it finds in the stream.

        `saved` says that its positions were saved as well, and with them what it had found and not begun to read.
        """
        for generation in self.generations:
            generation.found &= saved
            generation.begun = any(_begins(block, generation) for block in stored)
            generation.opened = False
            generation.excused |= generation.unlinked
        self.family_known = any(g.found or g.begun for g in self.generations)
        self._fresh = True

    # what must have been shipped

    def judge(self, blocks: Iterable[Block]) -> list[str]:
        """Return what is wrong with all blocks that were stored, once the agent had time to ship all that there is."""
        faults: list[str] = []
        shipped = self._owners(contents(blocks, faults), faults)
        if list(shipped) != sorted(shipped):
            faults.append(f"generations came in the order {list(shipped)}")
        for number, generation in enumerate(self.generations):
            self._judge_generation(number, generation, shipped.get(number, b""), faults)
        return faults

    def _owners(self, contents: Mapping[str, bytes], faults: list[str]) -> dict[int, bytes]:
        shipped: dict[int, bytes] = {}
        for file, content in contents.items():
            found = [n for n, g in enumerate(self.generations) if g.content.startswith(content)]
            # a file that was written anew may begin as it did before
            new = [n for n in found if n not in shipped]
            if not (found and content):
                faults.append(f"{file}: {shown(content)} was never written to one file")
            elif not new:
                faults.append(f"generation {found[0]} came again as {file}")
            else:
                shipped[new[0]] = content
        return shipped

    def _judge_generation(
        self, number: int, generation: Generation, content: bytes, faults: list[str]
    ) -> None:
        whole = generation.content
        if generation.excused and generation is not self.now:
            return
        # of a very long unfinished line of a live file some pieces may have been shipped
        live = generation is self.now
        due = whole.rfind(b"\n") + 1 if live else len(whole)
        if len(content) < due:
            faults.append(
                f"generation {number} lacks {shown(whole[len(content) : due])} at byte {len(content)}"
            )

    def _exists(self) -> bool:
        return self._path().exists()

    def _path(self, number: int = 0) -> Path:
        return self.folder / (f"{LIVE}.{number}" if number else LIVE)

    def _text(self, amount: int) -> bytes:
        self._number += 1
        # fewer bytes than the tail's are not enough to recognise a copy of a file that is gone
        least = 0 if self.now.content else 70
        return b"%d %s" % (self._number, b"x" * max(least, LENGTHS[amount % len(LENGTHS)]))

    def _append(self, data: bytes, hole_until: int = 0) -> None:
        with self._path().open("r+b" if self._exists() else "wb") as file:
            file.seek(hole_until or len(self.now.content))
            file.write(data[max(0, hole_until - len(self.now.content)) :])
        self._stamp(self._path())
        self.now.content += data

    def _empty(self) -> None:
        os.truncate(self._path(), 0)
        self._stamp(self._path())

    def _stamp(self, path: Path) -> None:
        os.utime(path, ns=(self._clock(), self._clock()))

    def _plain_sibling(self, amount: int) -> Path | None:
        # of NULs that are compressed nobody can tell whether they were allocated, where they are few
        allocated = [generation.allocated for generation in self.siblings]
        there = [
            path
            for n in range(1, KEPT + 1)
            if (path := self._path(n)).exists() and not any(allocated[n - 1 : n])
        ]
        return there[amount % len(there)] if there else None

    def _shift(self) -> None:
        for number in range(KEPT, 0, -1):
            for ending in ENDINGS:
                if (path := self.folder / f"{LIVE}.{number}{ending}").exists():
                    path.rename(self.folder / f"{LIVE}.{number + 1}{ending}")
        for dropped in self.folder.glob(f"{LIVE}.{KEPT + 1}*"):
            dropped.unlink()
            generation = self.siblings.pop()
            generation.unlinked = True
            generation.excused |= not generation.opened

    def _rotated(self) -> None:
        self.siblings.insert(0, self.now)
        self._begin()

    def _begin(self) -> None:
        self.generations.append(Generation())


def _form(amount: int) -> Packing:
    return FORMS[amount % len(FORMS)]


def _begins(block: Block, generation: Generation) -> bool:
    return block.section.span.start == 0 and generation.content.startswith(block.lines)
