"""Senders of a model test: shippers of several files and hosts, plain clients, garbage."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from broker.topology import Topology
from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from tests.conftest import Server, apply_topology
from tests.receiver.model import Model, Sent
from tests.receiver.partition import Message, lines_of, message

Answer = TypeVar("Answer")

HOSTS = {0: ("web01", "web02.example.net"), 1: ("db",)}
FILES = ("/var/log/app.log", "/var/log/sys.log")


class Flaky:
    """Makes the next write to KV of a connection fail, after or before it was done.

    `breaks` is "stored" or "not stored", None for a connection that works.
    """

    def __init__(self, connection: Connection) -> None:
        self.breaks: str | None = None
        self._ask = connection.ask
        connection.ask = self.ask  # type: ignore[method-assign]

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if not subject.startswith("$KV.") or self.breaks is None:
            return await self._ask(subject, *rest, **more)
        when, self.breaks = self.breaks, None
        if when == "stored":
            await self._ask(subject, *rest, **more)
        raise ConnectionLost("cut")


class Broker:
    """A server, a connection for any thread, and the connection of tasks here, made `flaky`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.new_event_loop()  # the caller may run on the loop of the tasks
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.connection = Connection([server.url], "model")
        self.worker = background.connection((server.url,))
        self.flaky = Flaky(self.worker)

    def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Ask, again and again while the broker is away."""

        async def patiently() -> Answer:
            while True:
                try:
                    return await question(self.connection)
                except ConnectionLost:
                    await self.connection.client()

        return asyncio.run_coroutine_threadsafe(patiently(), self.loop).result()

    def make_anew(self) -> None:
        """Begin with empty streams."""

        async def delete(connection: Connection) -> None:
            for name in (STREAM, "KV_LOGS_OFFSETS", "KV_LOGS_CONFIG"):
                with suppress(Rejected):
                    await connection.api(f"STREAM.DELETE.{name}")

        self.ask(delete)
        apply_topology(self.server.url, Topology(partitions=2))

    def close(self) -> None:
        background.wait(self.worker.close(), 10)
        self.ask(lambda connection: connection.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Source(NamedTuple):
    """A file on a host."""

    partition: int
    host: str
    file: str


class _Run(NamedTuple):
    """Lines of a file from a byte on."""

    source: Source
    start: int
    payload: bytes


@dataclass(slots=True)
class Senders:
    """All of them. What they have sent the model knows."""

    broker: Broker
    model: Model
    chance: random.Random
    positions: dict[Source, int] = field(default_factory=dict)
    shipped: dict[Source, list[tuple[int, bytes]]] = field(default_factory=dict)
    rests: dict[Source, bytes] = field(default_factory=dict)
    lines: int = 0

    def publish(self, amount: int) -> None:
        for _ in range(1 + 2 * amount):
            source = self._any()
            if self.chance.random() < 0.25:
                self._plain(source)
            else:
                self._store(self._next(source), *self._with_another(source))

    def publish_bad(self, amount: int) -> None:
        """Send an invalid zstd frame, an unknown encoding, or sections of another size."""
        source = self._any()
        headers = {"Content-Encoding": ("zstd", "br")[amount % 2]}
        if amount == 2:
            headers = _message(_Run(source, 10**6, b"12345678"))[2]
        sequence = self._send(source, b"no zstd", headers)
        self.model.sent[sequence] = (Sent(sequence, *source[:2], b"", is_bad=True),)

    def leave_a_gap(self, amount: int) -> None:
        source = self._any()
        self.positions[source] = self.positions.get(source, 0) + 10 + amount
        self._store(*self._with_another(source), self._next(source))

    def repeat(self, amount: int) -> None:
        """Send lines again, perhaps with new lines behind them, of this or another file."""
        source = self._any()
        shipped = self.shipped.get(source)
        if not shipped:
            return
        start, payload = shipped[-1 - amount % len(shipped)]
        if start + len(payload) == self.positions[source] and self.chance.random() < 0.5:
            payload += self._some_lines(source)
        self._store(_Run(source, start, payload), *self._with_another(source))

    def tear(self, amount: int) -> None:
        """Send a piece of a line; its rest comes with the next lines of the file, or never."""
        source = self._any()
        payload = self._some_lines(source)
        self._store(self._next(source, payload[: -2 - amount]), *self._with_another(source))
        if amount:
            self.rests[source] = payload[-2 - amount :]

    def _next(self, source: Source, payload: bytes = b"") -> _Run:
        lines = self.rests.pop(source, b"") + (payload or self._some_lines(source))
        return _Run(source, self.positions.get(source, 0), lines)

    def _with_another(self, source: Source) -> list[_Run]:
        """Return lines of the host's other files for the same message: none, as a rule."""
        others = [source._replace(file=file) for file in FILES if file != source.file]
        return [self._next(one) for one in others] if self.chance.random() < 0.3 else []

    def _store(self, *runs: _Run) -> None:
        """Send one message of runs of lines, all of one host."""
        for source, start, payload in runs:
            self.shipped.setdefault(source, []).append((start, payload))
            self.positions[source] = max(start + len(payload), self.positions.get(source, 0))
        _, data, headers = _message(*runs, compressed=self.chance.random() < 0.3)
        sequence = self._send(runs[0].source, data, headers)
        self.model.sent[sequence] = tuple(
            Sent(sequence, *source[:2], payload, source.file, start, start + len(payload))
            for source, start, payload in runs
        )

    def _plain(self, source: Source) -> None:
        payload = self._some_lines(source)
        is_finished = self.chance.random() < 0.5
        sequence = self._send(source, payload if is_finished else payload[:-1], None)
        self.model.sent[sequence] = (Sent(sequence, *source[:2], payload),)

    def _send(self, source: Source, data: bytes, headers: dict[str, str] | None) -> int:
        subject = f"logs.p{source.partition}.{source.host}"
        answer = self.broker.ask(lambda connection: connection.ask(subject, data, headers))
        return int(answer["seq"])

    def _some_lines(self, source: Source) -> bytes:
        made = []
        for _ in range(self.chance.randint(1, 4)):
            self.lines += 1
            made.append(f"{source.host} {self.lines:05d} " + "x" * self.chance.randint(0, 60))
        return "".join(f"{line}\n" for line in made).encode()

    def _any(self) -> Source:
        partition = self.chance.choice([0, 0, 1])
        return Source(partition, self.chance.choice(HOSTS[partition]), self.chance.choice(FILES))


def _message(*runs: _Run, compressed: bool = False) -> Message:
    parts = (lines_of(Path(one.source.file).name, one.start, one.payload) for one in runs)
    return message(runs[0].source.host, *parts, compressed=compressed)
