"""A floor for this path: loops with nats-py over a bare nats-server, acknowledged and synced.

`publish` follows files by polling and publishes whole lines, so many messages in flight; it
remembers nothing, retries nothing and identifies no file. `receive` pulls, appends,
syncs, and acknowledges. Whatever goes wrong ends either.
"""

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import click
import nats
from nats.js.api import AckPolicy, ConsumerConfig, PubAck

from nats_logship.wire.streams import STREAM

READY = "ready"
"""What the receiving end says when it may begin."""

_BLOCK = 256 * 1024
_IN_FLIGHT = 16
_PULL = 64  # messages
_PAUSE = 0.01  # seconds, where nothing is to be read
_MOST = 60.0


@click.group()
def main() -> None:
    """Run one of the two ends."""


@main.command()
@click.argument("server")
@click.argument("subject")
@click.argument("logs", type=click.Path(path_type=Path))
def publish(server: str, subject: str, logs: Path) -> None:
    """Publish all present and coming lines of *.log in a folder, until killed."""
    asyncio.run(_publish(server, subject, sorted(logs.glob("*.log"))))


@main.command()
@click.argument("server")
@click.argument("output", type=click.Path(path_type=Path))
def receive(server: str, output: Path) -> None:
    """Append all present and coming messages to a file for each host, until killed."""
    asyncio.run(_receive(server, output))


async def _publish(server: str, subject: str, logs: Sequence[Path]) -> None:
    stream = (await nats.connect(server)).jetstream()
    files = [path.open("rb", buffering=0) for path in logs]
    flying: deque[asyncio.Task[PubAck]] = deque()
    while True:
        blocks = [block for file in files if (block := _read(file))]
        for block in blocks:
            if len(flying) == _IN_FLIGHT:
                await flying.popleft()
            flying.append(asyncio.create_task(stream.publish(subject, block, timeout=_MOST)))
            await asyncio.sleep(0)  # so that it goes before the next one
        if not blocks:
            await asyncio.sleep(_PAUSE)


def _read(file: BinaryIO) -> bytes:
    """Return whole lines, and go on behind them."""
    text = file.read(_BLOCK)
    block = text[: text.rfind(b"\n") + 1]
    file.seek(len(block) - len(text), os.SEEK_CUR)
    return block


async def _receive(server: str, output: Path) -> None:
    stream = (await nats.connect(server)).jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=-1)
    consumer = await stream.pull_subscribe("", "bare", STREAM, config=config)
    files = _Files(output)
    print(READY, flush=True)
    while True:
        with suppress(TimeoutError):  # nats-py's, and asyncio's own where the machine is slow
            messages = await consumer.fetch(_PULL, timeout=1)
            for message in messages:
                files.append(message.subject.rpartition(".")[2], message.data)
            files.sync()
            for last in messages[-1:]:  # nats-py's may be none at all
                await last.ack()


class _Files:
    """A file for each host; all that were written to since are synced together."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._files: dict[str, BinaryIO] = {}
        self._written: set[int] = set()

    def append(self, host: str, lines: bytes) -> None:
        if host not in self._files:
            self._files[host] = (self._output / f"{host}.log").open("ab", buffering=0)
        self._files[host].write(lines)
        self._written.add(self._files[host].fileno())

    def sync(self) -> None:
        for number in self._written:
            os.fsync(number)
        self._written.clear()


if __name__ == "__main__":
    main()
