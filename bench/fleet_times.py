"""When lines of a fleet could be read, and when they were committed."""

import asyncio
import os
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
from nats.aio.msg import Msg

from bench.backlog import LINE_BYTES
from bench.fleet_wire import host_name
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET

_WATCHED = 100  # hosts: to look at each of thousands would take a processor
_EVERY = 0.005  # seconds


class Readable:
    """When lines of a hundred hosts were in their files: the n-th one when there are n."""

    def __init__(self, output: Path, hosts: int) -> None:
        self._paths = {
            number: output / f"{host_name(number)}.log"
            for number in range(0, hosts, max(1, hosts // _WATCHED))
        }
        self._seen: dict[int, list[tuple[int, float]]] = {number: [] for number in self._paths}

    async def watch(self) -> None:
        """Look every 5 ms until cancelled."""
        while True:
            for number, path in self._paths.items():
                with suppress(FileNotFoundError):
                    lines = os.stat(path).st_size // LINE_BYTES  # noqa: PTH116 - a third of its time
                    seen = self._seen[number]
                    if lines > (seen[-1][0] if seen else 0):
                        seen.append((lines, time.monotonic()))
            await asyncio.sleep(_EVERY)

    def times(self) -> Iterator[tuple[int, int, float]]:
        """Yield the host, the position and the monotonic seconds of each line that was seen."""
        for number, seen in self._seen.items():
            first = 0
            for until, at in seen:
                yield from ((number, position, at) for position in range(first, until))
                first = until


class Commits:
    """When each partition's offset was committed, as core NATS delivers it."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}
        self._next: dict[str, list[int]] = {}

    async def receive(self, message: Msg) -> None:
        """Take note of an entry of the bucket."""
        key = message.subject.rpartition(".")[2]
        self._times.setdefault(key, []).append(time.monotonic())
        self._next.setdefault(key, []).append(Offset.decode(message.data).next)

    def of(self, partition: int, sequence: int) -> float | None:
        """Return when a message was committed; None while it is not."""
        at = bisect_right(self._next.get(f"p{partition}", []), sequence)
        times = self._times.get(f"p{partition}", [])
        return times[at] if at < len(times) else None


@asynccontextmanager
async def commits_at(url: str) -> AsyncIterator[Commits]:
    """Note the commits of a broker's receivers; of no broker, an empty address, there are none."""
    commits = Commits()
    if not url:
        yield commits
        return
    client = await nats.connect(url)
    await client.subscribe(f"$KV.{OFFSETS_BUCKET}.>", cb=commits.receive)
    try:
        yield commits
    finally:
        await client.close()
