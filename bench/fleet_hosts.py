"""A program that is many hosts at once: each has a connection and publishes rounds as a shipper.

A host writes a line every `1/rate` seconds. What has come since its last round leaves as one
message, when the broker has acknowledged that one: the broker's speed decides how many lines a
round has. Commands come from standard input (`bench.fleet`).
"""

import asyncio
import json
import resource
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.backlog import LINE_BYTES
from nats_logship.wire.message import EXPECTED_SEQUENCE, Origin, Section, Span, encode_origin
from nats_logship.wire.subjects import Subject, partition_of

_AT_A_TIME = 100  # connections that are opened side by side
_HEAD = b"NATS/1.0\r\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does: hosts `[first, until)`, each `rate` lines a second, for `seconds`."""

    port: int
    first: int
    until: int
    partitions: int
    rate: float
    seconds: float


def host_name(number: int) -> str:
    """Return the name of a host."""
    return f"host{number:06d}"


def line(number: int, position: int) -> bytes:
    """Return a line of a host, the same each time."""
    return f"{host_name(number)} {position:08d} ".encode().ljust(LINE_BYTES - 1, b".") + b"\n"


class _Host(asyncio.Protocol):
    """One host: its connection, and the round in flight."""

    def __init__(self, number: int, plan: Plan) -> None:
        self._number, self._plan = number, plan
        partition = partition_of(host_name(number), plan.partitions)
        self._partition = partition
        self._subject = str(Subject(partition, host_name(number)))
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._began = 0.0
        self._sequence = 0
        self._sent = self._in_flight = 0  # lines
        self._sent_at = 0.0
        self.connected: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.rounds: list[tuple[int, int, float, float, float]] = []
        """Partition, sequence, and the monotonic seconds of the oldest line, sending and ack."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Take what the server says: INFO, PING, PONG, errors and acknowledgements."""
        self._received += data
        while (end := self._received.find(b"\r\n")) >= 0:
            line = self._received[:end]
            behind = end + 2
            if line.startswith(b"MSG "):
                behind += int(line.rsplit(b" ", 1)[1]) + 2
                if len(self._received) < behind:
                    return
                self._acknowledged(json.loads(self._received[end + 2 : behind - 2]))
            else:
                self._take(line)
            self._received = self._received[behind:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiting tasks: no connection may be lost here."""
        for waiting in (self.connected, self.done):
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"{self._subject}: {exc}"))

    def begin(self, at: float) -> None:
        """Write the first line at `at` (monotonic); hosts begin at different times."""
        self._began = at + (self._number % 97) / 97 / self._plan.rate
        self._loop.call_later(max(0.0, self._began - time.monotonic()), self._send)

    def close(self) -> None:
        """End the connection."""
        self._transport.abort()

    def _take(self, line: bytes) -> None:
        if line.startswith(b"INFO"):
            options = {"verbose": False, "headers": True, "no_responders": True}
            text = f"CONNECT {json.dumps(options)}\r\nSUB _INBOX.{self._number} 1\r\nPING\r\n"
            self._transport.write(text.encode())
        elif line == b"PING":
            self._transport.write(b"PONG\r\n")
        elif line == b"PONG":
            self.connected.set_result(None)
        elif line.startswith(b"-ERR"):
            raise ConnectionError(line.decode())

    def _due(self) -> int:
        """Return how many lines are written by now."""
        passed = min(time.monotonic() - self._began, self._plan.seconds)
        return int(passed * self._plan.rate) + 1

    def _send(self) -> None:
        due = self._due()
        if due == self._sent:
            if due > self._plan.seconds * self._plan.rate:
                self.done.set_result(None)
            else:
                next_line = self._began + due / self._plan.rate
                self._loop.call_later(max(0.0, next_line - time.monotonic()), self._send)
            return
        lines = b"".join(line(self._number, position) for position in range(self._sent, due))
        span = Span("1-1", self._sent * LINE_BYTES, due * LINE_BYTES)
        section = Section("/var/log/app.log", span, len(lines), due - self._sent)
        headers = encode_origin(Origin("1-00000001", time.time_ns(), (section,), False))
        headers[EXPECTED_SEQUENCE] = str(self._sequence)
        head = _HEAD + "".join(f"{k}: {v}\r\n" for k, v in headers.items()).encode() + b"\r\n"
        sizes = f"{len(head)} {len(head) + len(lines)}"
        command = f"HPUB {self._subject} _INBOX.{self._number} {sizes}\r\n"
        self._in_flight, self._sent_at = due, time.monotonic()
        self._transport.writelines((command.encode(), head, lines, b"\r\n"))

    def _acknowledged(self, answer: dict[str, Any]) -> None:
        if "seq" not in answer:
            raise ConnectionError(f"{self._subject}: {answer}")
        self._sequence = answer["seq"]
        oldest = self._began + self._sent / self._plan.rate
        self.rounds.append(
            (self._partition, self._sequence, oldest, self._sent_at, time.monotonic())
        )
        self._sent = self._in_flight
        self._send()


def _itself(host: _Host) -> _Host:
    return host


async def _run(plan: Plan) -> list[tuple[int, int, float, float, float]]:
    hosts = [_Host(number, plan) for number in range(plan.first, plan.until)]
    loop = asyncio.get_running_loop()
    for at in range(0, len(hosts), _AT_A_TIME):
        some = hosts[at : at + _AT_A_TIME]
        for host in some:
            await loop.create_connection(partial(_itself, host), "127.0.0.1", plan.port)
        await asyncio.gather(*(host.connected for host in some))
    print("connected", flush=True)
    begin = float(await asyncio.to_thread(sys.stdin.readline))
    for host in hosts:
        host.begin(begin)
    await asyncio.gather(*(host.done for host in hosts))
    for host in hosts:
        host.close()
    return [entry for host in hosts for entry in host.rounds]


def main() -> None:
    """Run the hosts of a plan, given as JSON, and write their rounds to a file."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rounds = asyncio.run(_run(Plan(**json.loads(sys.argv[1]))))
    Path(sys.argv[2]).write_text(json.dumps(rounds), "utf-8")
    print("done", flush=True)


if __name__ == "__main__":
    main()
