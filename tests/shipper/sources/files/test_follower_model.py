"""Random programs of file actions, with a follower that scans and gathers between them.

`tests/shipper/model.py` is their oracle; `test_agent_model.py` puts the whole agent, with a broker,
through the same.
"""

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nats_logship.wire.positions import Positions
from shipper.sources.files.records import LINES_ALONE, RecordRules
from shipper.sources.notices import NoticeKind
from tests.shipper.host import SECOND, Host
from tests.shipper.model import FILE_ACTIONS, LAYOUTS, Model
from tests.shipper.programs import STEP, Step, as_many_as, programs
from tests.shipper.seams import amid
from tests.shipper.shipped import origins

ACTIONS = {
    **FILE_ACTIONS,
    "copy_slowly_and_truncate": 2,
    "compress_slowly": 2,
    "rewrite": 2,
    "scan": 6,
    "scan_amid": 5,
    "gather_amid": 5,
    "gather_some": 5,
    "gather_all": 4,
    "pass_time": 1,
    "set_clock_back": 1,
    "set_clock_ahead": 1,
    "restart": 3,
    "restart_without_positions": 2,
    "store": 3,
    "rewind": 3,
}
REPORTED = {NoticeKind.UNREAD, NoticeKind.GONE, NoticeKind.TRUNCATED}
RECORDS = RecordRules("start:^[0-9]", timeout=2 * SECOND, lines=5)
BUDGETS = (1, 300, 1000, 1, 300)
SEAMS = 80
"""System calls of a scan or a gathering between which files may change."""
AMID = 3
"""How many of the actions that follow in a program happen in the midst of a scan or a gathering."""
PARTS = {
    "copy_truncate": ("begin_to_copy", "finish_copying", "truncate_copied"),
    "compress": ("begin_to_compress", "compress"),
    "recreate": ("delete", "write"),
}
"""What other things may happen in between of."""


class Program:
    """A follower and the model of its folder."""

    def __init__(
        self, folder: Path, layout: str, steps: Sequence[Step], records: RecordRules
    ) -> None:
        patterns = LAYOUTS[layout].patterns
        self.host = Host(
            folder, *patterns, grace=2.0, block_size=200, max_line=500, records=records
        )
        self.model = Model(folder, self.host.clock, LAYOUTS[layout])
        self.steps = deque(steps)
        self.stored = 0
        self.host.follower.stored = self.position

    async def run(self) -> None:
        while self.steps:
            action, amount = self.steps.popleft()
            self.host.later += STEP
            if action in FILE_ACTIONS:
                self.act(action, amount)
            else:
                await getattr(self, action)(amount)
        for _ in range(4):
            await self.pass_time()
            await self.scan()
            await self.gather_all()
        await self.host.follower.close()
        reports = [f"{n.path}: {n.text}" for n in self.host.notices if n.kind in REPORTED]
        assert self.model.judge(self.host.blocks, reports) == []

    def act(self, action: str, amount: int) -> None:
        getattr(self.model, action)(amount)

    async def scan_amid(self, seam: int) -> None:
        self.model.may_have_scanned()
        with amid(self.next_actions(seam)):
            await self.host.scan()

    async def gather_amid(self, seam: int) -> None:
        with amid(self.next_actions(seam)):
            await self.host.gather()

    def next_actions(self, seam: int) -> list[tuple[int, Callable[[], None]]]:
        """Take the next steps, to be done from this seam on, up to 4 seams apart."""
        actions: list[tuple[int, Callable[[], None]]] = []
        while self.steps and len(actions) < AMID and self.steps[0][0] in FILE_ACTIONS:
            action, amount = self.steps.popleft()
            for part in PARTS.get(action, (action,)):
                actions.append((seam, partial(self.amid, part, amount)))
                seam += amount
        return actions

    def amid(self, action: str, amount: int) -> None:
        self.host.later += STEP
        self.act(action, amount)
        self.model.may_have_scanned()

    async def copy_slowly_and_truncate(self, amount: int) -> None:
        self.model.copy(amount)
        await self.scan()
        await self.gather_some(amount)
        self.model.truncate_copied(amount)

    async def compress_slowly(self, amount: int) -> None:
        self.model.begin_to_compress(amount)
        await self.scan()
        await self.gather_some(amount)
        self.model.compress(amount)

    async def rewrite(self, amount: int) -> None:
        """Write a file again in place that is read and at rest, and let the agent find that out."""
        for _ in range(2):  # its last record waits once it is found
            await self.pass_time()
            await self.scan()
            await self.gather_all()
        await self.store()  # or what is written next may begin like what was stored of this one
        if self.model.rewrite(amount):
            for _ in range(3):
                self.host.later += STEP
                await self.scan()
                await self.gather_all()

    async def scan(self, _: int = 0) -> None:
        await self.host.scan()
        self.model.scanned()

    async def gather_some(self, amount: int) -> None:
        self.host.blocks += await self.host.follower.gather(BUDGETS[amount])

    async def gather_all(self, _: int = 0) -> None:
        await self.host.gather()

    async def pass_time(self, _: int = 0) -> None:
        self.host.later += 3 * SECOND

    async def set_clock_back(self, amount: int) -> None:
        self.host.set_clock(-amount)
        self.model.set_clock_back()
        await self.gather_some(0)  # as the agent does at least once a second

    async def set_clock_ahead(self, amount: int) -> None:
        self.host.set_clock(amount * 3600)

    async def restart(self, _: int) -> None:
        await self.store()
        await self.host.restart_with_saved_positions()
        self.restarted(saved=True)

    async def restart_without_positions(self, _: int) -> None:
        await self.store()
        self.host.positions = Positions(files={c.file: c for c in self.host.cursors()})
        await self.host.restart()
        self.restarted(saved=False)

    def restarted(self, *, saved: bool) -> None:
        self.host.follower.stored = self.position
        self.model.restarted(self.host.blocks, saved=saved)

    async def store(self, amount: int = 0) -> None:
        """Acknowledge what was read, but for so many blocks."""
        before, self.stored = self.stored, max(self.stored, len(self.host.blocks) - amount)
        acknowledged = origins(self.host.blocks[before : self.stored])
        self.host.positions = self.host.positions.advance(acknowledged, self.stored)

    async def rewind(self, _: int) -> None:
        """Lose the session, and with it all that is not stored."""
        await self.host.follower.rewind(self.host.positions.files)
        del self.host.blocks[self.stored :]

    def position(self, file: str) -> int:
        cursor = self.host.positions.files.get(file)
        return 0 if cursor is None else cursor.offset


REUSED_INODE = (
    "write copy_truncate scan restart rename write scan rename compress:1 gather_all compress"
)
DELETED_UNSEEN = "write copy_truncate copy_slowly_and_truncate write recreate rename"
REUSED_BETWEEN = (
    "write_part scan copy_truncate write copy_slowly_and_truncate write_part rename write"
)
REWRITTEN_AND_DELETED = "write compress_slowly truncate write compress_slowly delete"
REWRITTEN_AND_COMPRESSED = "write rename write copy_slowly_and_truncate write rename compress"
HELD_UNTIL_STORED = (
    "write scan gather_all delete scan gather_all pass_time scan gather_all scan rewind"
)
COPIED_BEHIND_A_DELETED_ONE = (
    "write copy_slowly_and_truncate write compress_slowly copy_truncate backdate rewind"
)
FEW_BYTES_ALLOCATED = "write allocate write write write scan restart write"
TRUNCATED_AND_COMPRESSED = "write copy_slowly_and_truncate rename gather_amid scan_amid:22 compress"
COMPRESSED_BEFORE_ITS_LIVE_PATH_CAME = "write rename write rename compress_slowly write"
WAITED_FOR_WHEN_REWOUND = (
    "write_part:4 scan gather_all rename write scan pass_time pass_time rewind scan gather_all"
)
DELETED_WHEN_REWOUND = (
    "write copy_slowly_and_truncate rename compress:1 write copy_truncate "
    "copy_slowly_and_truncate rewind rename"
)

SUCCESSOR_OF_A_LONG_LINE = (
    "write:3 copy_truncate:4 write_part:3 scan leave_hole:3 gather_amid:50 copy_truncate:4 write:4"
)

CLOCK_SET_BACK_BEHIND_A_TRUNCATION = (
    "write compress_slowly truncate set_clock_back:1 write rename",
    "write compress_slowly truncate set_clock_back:4 write_part copy_truncate",
    "write scan delete set_clock_back:3 write rename",
)
COMPRESSED_IN_ANOTHER_FOLDER = "write scan rename write copy_truncate compress_slowly:4"
REWRITTEN_AND_REWOUND = "write:3 write:3 rewrite:3 rewind restart"
DELETED_BEHIND_AN_UNSEEN_COPY = "write scan copy_truncate write copy_truncate write recreate"
UNFINISHED_AND_WITHOUT_ITS_LIVE_PATH = (
    "write copy_truncate write_part copy_slowly_and_truncate rename restart_without_positions"
)
REWRITTEN_AND_COMPRESSED_WHILE_DOWN = (
    "write:2 write:2 write:2 rewrite:2 copy_slowly_and_truncate:1 compress_slowly restart"
)
COMPRESSED_WHERE_AN_OLDER_FILE_WAS = "write rename rewrite write restart rename compress"


def written(program: str) -> list[Step]:
    """Return a program from its steps, each with its amount where that is not 0."""
    steps = (step.partition(":") for step in program.split())
    return [(name, int(amount or 0)) for name, _, amount in steps]


@pytest.mark.parametrize("records", [LINES_ALONE, RECORDS], ids=["lines", "records"])
@example(layout="numbers", steps=written(REUSED_INODE))
@example(layout="numbers", steps=written(REUSED_BETWEEN))
@example(layout="numbers", steps=written(DELETED_UNSEEN))
@example(layout="numbers", steps=written(DELETED_WHEN_REWOUND))
@example(layout="numbers", steps=written(REWRITTEN_AND_DELETED))
@example(layout="numbers", steps=written(REWRITTEN_AND_COMPRESSED))
@example(layout="numbers", steps=written(REWRITTEN_AND_COMPRESSED_WHILE_DOWN))
@example(layout="numbers", steps=written(HELD_UNTIL_STORED))
@example(layout="numbers", steps=written(WAITED_FOR_WHEN_REWOUND))
@example(layout="numbers", steps=written(FEW_BYTES_ALLOCATED))
@example(layout="dates", steps=written(COPIED_BEHIND_A_DELETED_ONE))
@example(layout="extension, shown", steps=written(COMPRESSED_BEFORE_ITS_LIVE_PATH_CAME))
@example(layout="extension, shown", steps=written(SUCCESSOR_OF_A_LONG_LINE))
@example(layout="dates", steps=written(TRUNCATED_AND_COMPRESSED))
@example(layout="dates", steps=written(CLOCK_SET_BACK_BEHIND_A_TRUNCATION[0]))
@example(layout="pod", steps=written(CLOCK_SET_BACK_BEHIND_A_TRUNCATION[1]))
@example(layout="pod", steps=written(CLOCK_SET_BACK_BEHIND_A_TRUNCATION[2]))
@example(layout="olddir", steps=written(COMPRESSED_IN_ANOTHER_FOLDER))
@example(layout="dates", steps=written(REWRITTEN_AND_REWOUND))
@example(layout="dates", steps=written(DELETED_BEHIND_AN_UNSEEN_COPY))
@example(layout="extension, shown", steps=written(COMPRESSED_WHERE_AN_OLDER_FILE_WAS))
@example(layout="extension, shown", steps=written(UNFINISHED_AND_WITHOUT_ITS_LIVE_PATH))
@as_many_as(100)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    steps=programs(ACTIONS, {"scan_amid": SEAMS, "gather_amid": SEAMS}),
)
def test_what_was_written_is_shipped_once_and_in_order_whatever_happens_to_files(
    layout: str, steps: list[Step], records: RecordRules
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Program(Path(folder), layout, steps, records).run())
