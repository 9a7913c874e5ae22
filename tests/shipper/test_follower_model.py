"""Random file actions against a model of what was written, judged byte for byte and in order.

A generation is what a writer wrote to one file from its creation, or truncation, to the next. Each must be shipped under
one file id, from 0 on without a hole, after all older ones, and whole - unless the model knows why it could not be.
"""

import asyncio
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.shipper.following import SECOND, Host

PROGRAMS = int(os.environ.get("LOGSHIP_PROGRAMS", "120"))
FIRST_PROGRAM = int(os.environ.get("LOGSHIP_FIRST_PROGRAM", "0"))
"""The first seed: with `LOGSHIP_PROGRAMS=1` a single program is run again."""
STEPS = 40
STEP = 50_000_000
"""Nanoseconds between two actions, also as the files' times show it: rotations come apart by more than a clock's tick."""
KEPT = 4


@dataclass
class Generation:
    content: bytes = b""
    excused: bool = False
    opened: bool = False
    unlinked: bool = False
    found: bool = False


class Program:
    """One random program; its law is `actions`: how often what happens."""

    actions: ClassVar = {
        "write": 12,
        "write_part": 4,
        "rename": 4,
        "copy_truncate": 2,
        "copy_then_truncate": 2,
        "truncate": 1,
        "delete": 1,
        "restart": 3,
        "look": 6,
        "gather_some": 5,
        "gather_all": 4,
        "pass_time": 1,
    }

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.host = Host(folder, grace=2.0, block_size=200, max_line=500)
        self.generations: list[Generation] = [Generation()]
        self.siblings: list[Generation] = []
        self.trace: list[str] = []
        self.number = 0
        self.is_saved = seed % 2 == 1
        self.family_known = False
        self.fresh = True
        self.seen_empty: Generation | None = None

    @property
    def now(self) -> Generation:
        return self.generations[-1]

    async def run(self) -> None:
        names, weights = list(self.actions), list(self.actions.values())
        for name in self.random.choices(names, weights, k=STEPS):
            self.trace.append(name)
            self.host.later += STEP
            await getattr(self, name)()
        for _ in range(4):
            self.host.later += 3 * SECOND
            await self.look()
            await self.gather_all()
        await self.host.follower.close()
        self.judge()

    async def write(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self._append(self._text() + b"\n")

    async def write_part(self) -> None:
        self._append(self._text())

    async def rename(self) -> None:
        if self._exists():
            self._shift()
            self.host.move("app.log", "app.log.1")
            self._rotated()

    async def copy_truncate(self) -> None:
        if self._exists():
            self._shift()
            self.host.copy_truncate("app.log", "app.log.1")
            self._stamp("app.log.1", "app.log")
            self.now.opened = False
            self._rotated()

    async def copy_then_truncate(self) -> None:
        if not self._exists():
            return
        self._shift()
        (self.host.folder / "app.log.1").write_bytes((self.host.folder / "app.log").read_bytes())
        self._stamp("app.log.1")
        await self.look()
        await self.gather_some()
        os.truncate(self.host.folder / "app.log", 0)
        self._stamp("app.log")
        self.now.opened = False
        self._rotated()

    async def truncate(self) -> None:
        if self._exists():
            os.truncate(self.host.folder / "app.log", 0)
            self._stamp("app.log")
            self.now.excused = True
            self.generations.append(Generation())

    async def delete(self) -> None:
        if self._exists():
            (self.host.folder / "app.log").unlink()
            self.now.unlinked = True
            self.now.excused = not self.now.opened
            self.generations.append(Generation())

    async def restart(self) -> None:
        if self.is_saved:
            await self.host.restart_with_saved_positions()
            self.family_known = bool(self.host.positions.files)
        else:
            await self.host.restart()
            self.family_known = bool(self.host.cursors())
        self.fresh = True
        for generation in self.generations:
            generation.opened = False
            generation.excused |= generation.unlinked

    async def look(self) -> None:
        await self.host.look()
        if not self.family_known:
            # on a first start whatever was rotated is older than we are
            self.family_known = self._exists()
            for sibling in self.siblings:
                sibling.excused = True
        if self.fresh and not any(map(self._is_started, self.siblings)):
            # nothing is left of what we knew, so there is only time to tell old files from new ones
            for sibling in self.siblings:
                sibling.excused |= not sibling.found
        self.fresh = False
        self.seen_empty = self.now if self._exists() and not self.now.content else None
        for generation in (*self.siblings, self.now):
            # what saved positions remember of a file is found again, whatever became of its name
            generation.found |= self.is_saved and bool(generation.content)
        for sibling in self.siblings:
            sibling.opened = True
        self.now.opened |= bool(self.now.content)
        self.now.opened &= self._exists()

    async def gather_some(self) -> None:
        await self._look_if_blind()
        self.host.blocks += await self.host.follower.gather(self.random.choice([1, 300, 1000]))

    async def gather_all(self) -> None:
        await self._look_if_blind()
        await self.host.gather()

    async def _look_if_blind(self) -> None:
        # of a file that was empty when it was seen nothing tells that it was truncated since; the watcher does
        if self.seen_empty is not None and self.seen_empty is not self.now:
            await self.look()

    async def pass_time(self) -> None:
        self.host.later += 3 * SECOND

    def _is_started(self, generation: Generation) -> bool:
        return any(
            block.origin.span.start == 0 and generation.content.startswith(block.payload[:-1])
            for block in self.host.blocks
            if block.origin.span is not None
        )

    def _exists(self) -> bool:
        return (self.host.folder / "app.log").exists()

    def _text(self) -> bytes:
        self.number += 1
        # fewer bytes than the tail's are not enough to recognise a copy of a file that is gone
        least = 0 if self.now.content else 70
        return b"%d %s" % (self.number, b"x" * max(least, self.random.choice([0, 3, 40, 230, 600])))

    def _append(self, data: bytes) -> None:
        self.host.write("app.log", data)
        self._stamp("app.log")
        self.now.content += data

    def _stamp(self, *names: str) -> None:
        for name in names:
            os.utime(self.host.folder / name, ns=(self.host.clock(), self.host.clock()))

    def _shift(self) -> None:
        for number in range(KEPT, 0, -1):
            if (self.host.folder / f"app.log.{number}").exists():
                self.host.move(f"app.log.{number}", f"app.log.{number + 1}")
        if (dropped := self.host.folder / f"app.log.{KEPT + 1}").exists():
            dropped.unlink()
            generation = self.siblings.pop()
            generation.unlinked = True
            generation.excused |= not generation.opened

    def _rotated(self) -> None:
        self.siblings.insert(0, self.now)
        self.generations.append(Generation())

    def judge(self) -> None:
        shipped: dict[str, bytes] = {}
        for block in self.host.blocks:
            span = block.origin.span
            assert span is not None
            assert span.start == len(shipped.setdefault(span.file, b"")), (
                f"hole or repeat at {span}"
            )
            shipped[span.file] += block.payload[: span.end - span.start]
            assert block.payload[span.end - span.start :] in {b"", b"\n"}
        order = [self._which(content) for content in shipped.values()]
        assert order == sorted(set(order)), f"shipped in the order {order}"
        for number, generation in enumerate(self.generations):
            last = generation is self.now
            due = generation.content.rpartition(b"\n")[1] if last else generation.content
            if due and not generation.excused:
                assert number in order, f"generation {number} is missing"
        for number, content in zip(order, shipped.values(), strict=True):
            generation = self.generations[number]
            whole = generation.content
            if generation is self.now:
                # of a very long unfinished line some pieces may have been shipped
                assert whole.startswith(content)
                assert len(content) > whole.rfind(b"\n"), "the live file is not whole"
            elif generation.excused:
                assert whole.startswith(content)
            else:
                assert content == whole, f"generation {number} is not whole"

    def _which(self, content: bytes) -> int:
        found = [n for n, g in enumerate(self.generations) if g.content.startswith(content)]
        assert len(found) == 1, f"{content[:80]!r} is of generations {found}"
        return found[0]


@pytest.mark.parametrize("group", range(4))
def test_what_was_written_is_shipped_once_and_in_order_whatever_happens_to_files(
    group: int, tmp_path: Path
) -> None:
    for seed in range(FIRST_PROGRAM + group, FIRST_PROGRAM + PROGRAMS, 4):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        program = Program(seed, folder)
        try:
            asyncio.run(program.run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{' '.join(program.trace)}") from error
