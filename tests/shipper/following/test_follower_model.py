"""Random programs of file actions, followed by a follower that is made to look and to gather between them.

What is said of them is `tests/shipper/model.py`; the whole agent, with a broker, is put through the same in
`test_agent_model.py`.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given

from tests.shipper.host import SECOND, Host
from tests.shipper.model import FILE_ACTIONS, PATTERNS, Model
from tests.shipper.programs import STEP, Step, as_many_as, programs

ACTIONS = {
    **FILE_ACTIONS,
    "copy_slowly_and_truncate": 2,
    "compress_slowly": 2,
    "look": 6,
    "gather_some": 5,
    "gather_all": 4,
    "pass_time": 1,
    "restart": 3,
    "restart_without_positions": 2,
}
BUDGETS = (1, 300, 1000, 1, 300)


class Program:
    """A follower and the model of its folder."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(folder, *PATTERNS, grace=2.0, block_size=200, max_line=500)
        self.model = Model(folder, self.host.clock)

    async def run(self, steps: list[Step]) -> None:
        for action, amount in steps:
            self.host.later += STEP
            if action in FILE_ACTIONS:
                getattr(self.model, action)(amount)
            else:
                await getattr(self, action)(amount)
        for _ in range(4):
            await self.pass_time()
            await self.look()
            await self.gather_all()
        await self.host.follower.close()
        verdict = self.model.judge(self.host.blocks)
        assert verdict.is_perfect, verdict

    async def copy_slowly_and_truncate(self, amount: int) -> None:
        self.model.copy(amount)
        await self.look()
        await self.gather_some(amount)
        self.model.truncate_copied(amount)

    async def compress_slowly(self, amount: int) -> None:
        self.model.begin_to_compress(amount)
        await self.look()
        await self.gather_some(amount)
        self.model.compress(amount)

    async def look(self, _: int = 0) -> None:
        await self.host.look()
        self.model.looked()

    async def gather_some(self, amount: int) -> None:
        await self._look_if_blind()
        self.host.blocks += await self.host.follower.gather(BUDGETS[amount])

    async def gather_all(self, _: int = 0) -> None:
        await self._look_if_blind()
        await self.host.gather()

    async def pass_time(self, _: int = 0) -> None:
        self.host.later += 3 * SECOND

    async def restart(self, _: int) -> None:
        await self.host.restart_with_saved_positions()
        self.model.restarted(self.host.blocks, saved=True)

    async def restart_without_positions(self, _: int) -> None:
        await self.host.restart()
        self.model.restarted(self.host.blocks, saved=False)

    async def _look_if_blind(self) -> None:
        if self.model.is_blind:
            await self.look()


@as_many_as(500)
@given(steps=programs(ACTIONS))
def test_what_was_written_is_shipped_once_and_in_order_whatever_happens_to_files(
    steps: list[Step],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Program(Path(folder)).run(steps))
