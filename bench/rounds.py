"""A shipper's rounds as fast as a broker takes them: prepared bytes over a bare socket, each after the answer to the one before.

A client that costs next to nothing, so that what brokers differ in is not hidden behind it. Knows no credentials.
"""

import os
import socket
from dataclasses import dataclass
from types import TracebackType

from broker.client.answer import answer_of, stored_at
from broker.wire.message import Origin, Section, Span, encode_origin
from broker.wire.subjects import Subject

__all__ = ["Publisher", "Rounds"]

_JOINED = 16 * 1024  # bytes of a message, from which on a copy costs more than a call of the system
_PATIENCE = 60.0  # seconds for an answer


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a host sends at a time: a message of so many bytes; `hosts` do so side by side.

    Where rounds are slow, one part of `share` of a measurement's bytes is enough.
    """

    name: str
    size: int
    hosts: int = 1
    share: int = 1

    @property
    def turn(self) -> int:
        """The bytes of one round of every host."""
        return self.size * self.hosts

    def turns(self, size: int) -> int:
        """Return how many rounds of every host a measurement of `size` bytes takes; at least one."""
        return max(1, size // self.share // self.turn)


class Publisher:
    """Hosts that publish to a stream in which nothing is held of them yet."""

    def __init__(self, port: int, rounds: Rounds) -> None:
        """Connect to a broker at a loopback port and prepare the rounds."""
        self._rounds = rounds
        self._payload = os.urandom(rounds.size) + b"\r\n"
        self._expected = [0] * rounds.hosts
        self._headers = _headers(rounds.size)
        self._line = socket.create_connection(("127.0.0.1", port), _PATIENCE)
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._line.makefile("rb")
        self._answers.readline()
        self._line.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        self._line.sendall(b"SUB answers.* 1\r\n")

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answers.close()
        self._line.close()

    def publish(self, turns: int) -> None:
        """Publish so many rounds of each host; returns when all are stored.

        Raises `Rejected` with the broker's words, and OSError for a broker that is not there.
        """
        for _ in range(turns):
            for host in range(self._rounds.hosts):
                self._send(host)
            for _ in range(self._rounds.hosts):
                host, sequence = self._answer()
                self._expected[host] = sequence

    def _send(self, host: int) -> None:
        expected = b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % self._expected[host]
        head = b"NATS/1.0\r\n%s%s\r\n" % (expected, self._headers)
        sizes = f"{len(head)} {len(head) + self._rounds.size}"
        subject = Subject(0, f"web{host:02}.example.net")
        command = f"HPUB {subject} answers.{host} {sizes}\r\n".encode() + head
        if self._rounds.size < _JOINED:
            self._line.sendall(command + self._payload)
        else:
            self._line.sendall(command)
            self._line.sendall(self._payload)

    def _answer(self) -> tuple[int, int]:
        """Return whose round was stored, and its sequence."""
        while line := self._answers.readline():
            match line.split():
                case [b"MSG", subject, _, size]:
                    answer = self._answers.read(int(size) + 2)
                    return int(subject.rpartition(b".")[2]), stored_at(answer_of(answer))
                case [b"PING"]:
                    self._line.sendall(b"PONG\r\n")
                case [b"PONG" | b"INFO" | b"+OK", *_]:
                    continue
                case _:
                    break
        raise ConnectionError(line.decode(errors="replace").strip() or "the broker hung up")


def _headers(size: int) -> bytes:
    section = Section("/var/log/app.log", Span("1-1", 0, size), size, 1)
    origin = Origin("1-00000001", 1_790_000_000_000_000_000, (section,))
    return "".join(f"{name}: {value}\r\n" for name, value in encode_origin(origin).items()).encode()
