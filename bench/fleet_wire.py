"""Hosts of a fleet: each has a connection, and publishes its lines as a real agent does.

A host writes a line of 200 bytes every `1/rate` seconds. What is due leaves by one of three
protocols; in each of them a host remembers when lines were acknowledged.
"""

import asyncio
import json
import random
import struct
import time
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

import msgspec

from bench.backlog import LINE_BYTES
from nats_logship.wire.interval import INTERVAL_KEY, INTERVAL_SUBJECT, parse_interval
from nats_logship.wire.message import EXPECTED_SEQUENCE, Origin, Section, Span, encode_origin
from nats_logship.wire.pause import PAUSE_KEY
from nats_logship.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from nats_logship.wire.subjects import Subject, partition_of

_pack = msgspec.msgpack.encode
Round = tuple[int, int, int, int, float]
"""Host, sequence (0 if there is none), its lines `[first, until)`, monotonic seconds of the ack."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process does: hosts `[first, until)`, each `rate` lines a second, for `seconds`.

    `wire` is a key of `WIRES`. An `interval` in seconds is followed instead of the broker's.
    """

    wire: str
    port: int
    first: int
    until: int
    partitions: int
    rate: float
    seconds: float
    interval: float | None = None

    @property
    def lines(self) -> int:
        """How many lines each host writes."""
        return int(self.rate * self.seconds) + 1

    def written(self, number: int, position: int) -> float:
        """Return the seconds from the begin to the write of a host's line; hosts are spread."""
        return ((number % 97) / 97 + position) / self.rate


def host_name(number: int) -> str:
    """Return the name of a host."""
    return f"host{number:06d}"


def line(number: int, position: int) -> bytes:
    """Return a line of a host, the same each time."""
    return f"{host_name(number)} {position:08d} ".encode().ljust(LINE_BYTES - 1, b".") + b"\n"


class Host(asyncio.Protocol):
    """One host: its connection, what it has sent, and what was acknowledged.

    Lines are numbered from 0. By itself a host has one message in flight, with all lines that are
    due, and sends the next one `interval` seconds after it at the earliest.
    """

    interval = 0.0

    def __init__(self, number: int, plan: Plan) -> None:
        self._number, self._plan = number, plan
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._begin = inf
        self._sent = self._acked = 0  # lines
        self._sent_at = -inf
        self._timer: asyncio.TimerHandle | None = None
        self.connected: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.rounds: list[Round] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open a session."""
        self._transport: Any = transport
        self._open()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiting tasks: no connection may be lost here."""
        for waiting in (self.connected, self.done):
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"{host_name(self._number)}: {exc}"))

    def data_received(self, data: bytes) -> None:
        """Read all whole answers."""
        self._received += data
        while size := self._read(self._received):
            self._received = self._received[size:]

    def begin(self, at: float) -> None:
        """Write the first line soon after `at` (monotonic)."""
        self._begin = at
        self._go_on()

    def close(self) -> None:
        """End the connection."""
        self._transport.abort()

    def _open(self) -> None:
        """Greet the server."""
        self.connected.set_result(None)

    def _read(self, received: bytes) -> int:
        """Read an answer at the beginning of `received`; return its bytes, 0 if it is not whole."""
        raise NotImplementedError

    def _publish(self, first: int, until: int) -> None:
        """Send lines `[first, until)`."""
        raise NotImplementedError

    def _space(self) -> int:
        """Return how many lines may be sent now."""
        return 0 if self._sent > self._acked else self._plan.lines

    def _next_send(self) -> float:
        """Return when what waits may be sent."""
        return self._sent_at + self.interval

    def _written(self, position: int) -> float:
        return self._begin + self._plan.written(self._number, position)

    def _go_on(self) -> None:
        """Send what is due if it may be sent; else come back when that may have changed."""
        now, lines = time.monotonic(), self._plan.lines
        if self._acked == lines and not self.done.done():
            self.done.set_result(None)
        if self._sent == lines or not (space := self._space()):
            return
        at = max(self._written(self._sent), self._next_send())
        if now < at:
            if self._timer is None:
                self._timer = self._loop.call_at(at, self._wake)
            return
        written = int((now - self._written(0)) * self._plan.rate) + 1
        first, self._sent = self._sent, min(lines, max(written, self._sent + 1), self._sent + space)
        self._sent_at = now
        self._publish(first, self._sent)
        self._go_on()

    def _wake(self) -> None:
        self._timer = None
        self._go_on()

    def _acknowledge(self, until: int, sequence: int = 0) -> None:
        entry = (self._number, sequence, self._acked, until, time.monotonic())
        self.rounds.append(entry)
        self._acked = until
        self._go_on()


class NatsHost(Host):
    """A shipper: a message per round, with its headers; the broker may ask for a longer interval.

    As a shipper does, it reads the pauses and the number of partitions every ten seconds.
    """

    interval = 0.2  # a shipper's own, for lines as few as these
    _BUSY = 429  # too many messages wait at the stream: they are sent again, as by a shipper
    _ACK = b"1"  # the subscription of acknowledgements

    def __init__(self, number: int, plan: Plan) -> None:
        super().__init__(number, plan)
        partition = partition_of(host_name(number), plan.partitions)
        self._subject = str(Subject(partition, host_name(number)))
        self._inbox = f"_INBOX.{number}"
        self._sequence = 0
        self._asked = plan.interval or 0.0
        self._share = random.uniform(0.9, 1.1)  # of what is asked for, as a shipper has

    def begin(self, at: float) -> None:
        """Begin, and read the configuration from now on."""
        super().begin(at)
        self._get(INTERVAL_KEY)
        self._loop.call_at(at + random.uniform(0, 10), self._read_config)

    def _open(self) -> None:
        """Wait for the server, which speaks first."""

    def _greet(self) -> None:
        options = {"verbose": False, "headers": True, "no_responders": True}
        commands = [f"CONNECT {json.dumps(options)}", f"SUB {self._inbox}.ack 1"]
        commands += [f"SUB {self._inbox}.config 2", f"SUB {INTERVAL_SUBJECT} 3", "PING", ""]
        self._transport.write("\r\n".join(commands).encode())

    def _read_config(self) -> None:
        if self._transport.is_closing():
            return
        self._get(PAUSE_KEY, PARTITIONS_KEY)
        self._loop.call_later(10 * random.uniform(0.75, 1), self._read_config)

    def _get(self, *keys: str) -> None:
        get = f"PUB $JS.API.DIRECT.GET.KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}."
        asked = [f"{get}{key} {self._inbox}.config 0\r\n\r\n" for key in keys]
        self._transport.write("".join(asked).encode())

    def _read(self, received: bytes) -> int:
        end = received.find(b"\r\n") + 2
        if end < 2:
            return 0
        verb, *words = received[: end - 2].split(b" ")
        if verb in (b"MSG", b"HMSG"):
            size = int(words[-1])
            if len(received) < end + size + 2:
                return 0
            head = int(words[-2]) if verb == b"HMSG" else 0
            message = received[end : end + size]
            self._take(words[0].decode(), words[1], message[:head], message[head:])
            return end + size + 2
        if verb == b"INFO":
            self._greet()
        elif verb == b"PING":
            self._transport.write(b"PONG\r\n")
        elif verb == b"PONG" and not self.connected.done():
            self.connected.set_result(None)
        elif verb == b"-ERR":
            raise ConnectionError(received[: end - 2].decode())
        return end

    def _take(self, subject: str, subscription: bytes, headers: bytes, payload: bytes) -> None:
        if subscription == self._ACK:
            self._take_answer(json.loads(payload))
        elif self._plan.interval is None and (
            subject == INTERVAL_SUBJECT or INTERVAL_SUBJECT.encode() in headers
        ):
            self._asked = parse_interval(payload) or 0.0

    def _take_answer(self, answer: dict[str, Any]) -> None:
        if error := answer.get("error"):
            if error["code"] != self._BUSY:
                raise ConnectionError(f"{self._subject}: {error}")
            pause = random.uniform(0.25, 0.5)
            self._loop.call_later(pause, self._publish, self._acked, self._sent)
        else:
            self._sequence = answer["seq"]
            self._acknowledge(self._sent, self._sequence)

    def _publish(self, first: int, until: int) -> None:
        self.interval = max(NatsHost.interval, self._asked * self._share)
        lines = b"".join(line(self._number, position) for position in range(first, until))
        span = Span("1-1", first * LINE_BYTES, until * LINE_BYTES)
        section = Section("/var/log/app.log", span, len(lines), until - first)
        headers = encode_origin(Origin("1-00000001", time.time_ns(), (section,), False))
        headers[EXPECTED_SEQUENCE] = str(self._sequence)
        texts = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = b"NATS/1.0\r\n" + texts.encode() + b"\r\n"
        sizes = f"{len(head)} {len(head) + len(lines)}"
        command = f"HPUB {self._subject} {self._inbox}.ack {sizes}\r\n"
        self._transport.write(b"".join((command.encode(), head, lines, b"\r\n")))


class RelpHost(Host):
    """rsyslog's omrelp: a message per line, sent as it is written, 128 of them in flight."""

    _WINDOW = 128
    _OFFER = b"relp_version=0\nrelp_software=bench\ncommands=syslog"
    _OPEN = 1  # number of the first transaction

    def _open(self) -> None:
        self._command(self._OPEN, b"open", self._OFFER)

    def _command(self, transaction: int, name: bytes, data: bytes) -> None:
        self._transport.write(b"%d %b %d %b\n" % (transaction, name, len(data), data))

    def _space(self) -> int:
        return self._WINDOW - (self._sent - self._acked)

    def _publish(self, first: int, until: int) -> None:
        head = f"<134>1 {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} "
        head += f"{host_name(self._number)} - - - - "
        for position in range(first, until):
            text = head.encode() + line(self._number, position)[:-1]
            self._command(position + 1 + self._OPEN, b"syslog", text)

    def _read(self, received: bytes) -> int:
        words = received.split(b" ", 3)
        if len(words) < 4:
            return 0
        size = len(received) - len(words[3]) + int(words[2]) + 1
        if len(received) < size:
            return 0
        transaction = int(words[0])
        if words[1] != b"rsp" or not words[3].startswith(b"200"):
            raise ConnectionError(f"{host_name(self._number)}: {received[:100]!r}")
        if transaction == self._OPEN:
            self.connected.set_result(None)
        else:
            self._acknowledge(transaction - self._OPEN)
        return size


class ForwardHost(Host):
    """Fluent Bit's forward output: what came in a second, its default, is a chunk; one is sent."""

    _FLUSH = 1.0  # seconds

    def __init__(self, number: int, plan: Plan) -> None:
        super().__init__(number, plan)
        self._phase = (number % 89) / 89 * self._FLUSH  # other hosts flush at other times
        self._chunk = ""

    def _next_send(self) -> float:
        came = self._written(self._sent) - self._begin - self._phase
        return self._begin + self._phase + ceil(came / self._FLUSH) * self._FLUSH

    def _publish(self, first: int, until: int) -> None:
        stamp = msgspec.msgpack.Ext(0, struct.pack(">II", *divmod(time.time_ns(), 1_000_000_000)))
        lines = (line(self._number, position)[:-1] for position in range(first, until))
        records = b"".join(_pack([stamp, {"line": one.decode()}]) for one in lines)
        self._chunk = f"{self._number:012d}{until:012d}"
        options = {"size": until - first, "chunk": self._chunk}
        self._transport.write(_pack([f"{host_name(self._number)}.log", records, options]))

    def _read(self, received: bytes) -> int:
        expected = _pack({"ack": self._chunk})
        if len(received) < len(expected):
            return 0
        if not received.startswith(expected):
            raise ConnectionError(f"{host_name(self._number)}: {received[:100]!r}")
        self._acknowledge(self._sent)
        return len(expected)


WIRES: dict[str, type[Host]] = {
    "logship": NatsHost,
    "rsyslog": RelpHost,
    "fluent-bit": ForwardHost,
}
"""The hosts of each system."""
