"""A journal source that a test reads as the agent does, and judges as a receiver does."""

import asyncio
import itertools
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nats_logship.wire.message import Origin
from nats_logship.wire.positions import Positions
from receiver.consume.judging import judge
from receiver.storage.anomalies import AnomalyKind
from shipper.sources.block import Block
from shipper.sources.journal.rules import Options
from shipper.sources.journal.source import JournalSource
from shipper.sources.notices import Notice

_QUIET = 15.0  # seconds in which a journal that has grown is read
_BUDGET = 1024 * 1024


class Reading:
    """An agent without a broker: all blocks are acknowledged at once, and outlive a restart."""

    def __init__(self, folder: object, **options: Any) -> None:
        self._options = Options(path="journal", folder=str(folder), once=True)
        self._options = replace(self._options, **options)
        self._ids = itertools.count()
        self._ends: dict[str, int] = {}
        self.positions = Positions()
        self.blocks: list[Block] = []
        self.notices: list[Notice] = []
        self.gaps: list[tuple[int, int]] = []
        self.source: JournalSource | None = None
        self.longest = 1024 * 1024

    async def list_files(self) -> list[Notice]:
        """Scan as it is at the start, or later."""
        if self.source is None:
            self.source = self._open()
            known = self.positions.files.items()
            await self.source.rewind({one: at for one, at in known if self.source.owns(at)})
        return await self.source.scan()

    async def read(self) -> list[str]:
        """Read all that is there; return the messages."""
        self.notices += await self.list_files()
        assert self.source is not None
        self.source.resize(256 * 1024, 32 * 1024, self.longest)
        found: list[str] = []
        quiet_at = time.monotonic() + _QUIET
        while time.monotonic() < quiet_at:
            count = len(self.blocks)
            found += await self.gather()
            if len(self.blocks) > count:
                quiet_at = time.monotonic() + _QUIET
            elif not any(state.is_awaited for state in self.source.files()):
                break
            await asyncio.sleep(0.01)
        self.notices += await self.source.scan()
        ended = self.source.ended_files
        self.positions = self.positions.with_ended(ended, ())
        return found

    async def gather(self, budget: int = _BUDGET) -> list[str]:
        """Read what can be read at once; return the messages."""
        assert self.source is not None
        found: list[str] = []
        for block in await self.source.gather(budget):
            self._take(block)
            found += re.findall(r": (.*)\n", block.lines.decode(errors="replace"))
        return found

    def _open(self) -> JournalSource:
        ids, wake = self._ids, asyncio.Event()
        return JournalSource(self._options, lambda: f"id-{next(ids)}", time.time_ns, wake)

    def _take(self, block: Block) -> None:
        span = block.section.span
        judged = judge(self._ends.get(span.file_id), block.section, "web01", 1)
        if judged.anomaly:
            assert judged.anomaly.kind is AnomalyKind.GAP, judged.anomaly
            self.gaps.append((judged.anomaly.start, judged.anomaly.end))
        self._ends[span.file_id] = span.end
        self.blocks.append(block)
        self.positions = self.positions.advance([Origin("a-1", block.read_at, (block.section,))], 1)

    async def restart(self, **options: Any) -> None:
        """End it; the next `read` is another agent's, with other options."""
        self._options = replace(self._options, **options)
        if self.source is not None:
            await self.source.close()
        self.source = None

    @property
    def texts(self) -> str:
        """All notices."""
        return "\n".join(f"{one.kind.value}: {one.text}" for one in self.notices)

    @property
    def troubles(self) -> list[str]:
        """What keeps entries from being read now."""
        return [one.text for one in self.source.troubles] if self.source else []

    @property
    def files(self) -> Mapping[str, int]:
        """How far each file id is covered."""
        return self._ends
