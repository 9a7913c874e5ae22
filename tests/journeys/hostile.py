"""A site with one bad host: what it does with its credential, and what each thing must come to.

The bad host has a credential of its own and a connection of its own making. Everything here stays on the loopback
interface and is bounded in number and in time.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import zstandard

from broker.auth.permissions import API
from broker.wire.subjects import inbox_of
from tests.raw import Heard, Raw

BAD = "evil"
_POSITIONS = f"$KV.LOGS_POSITIONS.{BAD}"
MEBIBYTE = 1024 * 1024


@dataclass(slots=True)
class Attack:
    """The means of the bad host: where its lines go, and as many connections as the server gives it."""

    connect: Callable[[], Raw]
    port: int
    partition: int
    stack: ExitStack
    quarantined: int = 0
    """How many messages must be found in quarantine, unread."""

    @property
    def subject(self) -> str:
        """The subject of its own lines."""
        return f"logs.p{self.partition}.{BAD}"

    def connection(self) -> Raw:
        """Open one more connection, which lives until the operation is over."""
        return self.stack.enter_context(self.connect())

    def publish(self, payload: bytes, times: int = 1, **headers: str) -> list[Heard]:
        """Publish to its own subject, in one go."""
        message = _message(self.subject, payload, headers)
        return [self.connection().say(message * times)]

    def publish_to(self, *subjects: str) -> list[Heard]:
        """Publish to each of the subjects, each on a connection of its own."""
        return [self.connection().publish(one, b"a line of a bad host\n") for one in subjects]


Operation = Callable[[Attack], Sequence[Heard]]
"""One thing that the bad host does; it returns what the server said to it."""


def _message(subject: str, payload: bytes, headers: dict[str, str]) -> bytes:
    if not headers:
        return f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n"
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"NATS/1.0\r\n{named}\r\n".encode()
    sizes = f"{len(head)} {len(head) + len(payload)}"
    return f"HPUB {subject} {sizes}\r\n".encode() + head + payload + b"\r\n"


def _ours(**section: object) -> dict[str, str]:
    """Return the headers of a shipper's message of 7 bytes; `section` is what its only section says otherwise."""
    entry = {"file": "/var/log/app.log", "id": "f", "start": 0, "end": 7, "size": 7, "lines": 1}
    return _with_spans(json.dumps([entry | section]))


def _with_spans(text: str) -> dict[str, str]:
    return {"Log-Agent": "evil-agent", "Log-Read-At": "1", "Log-Spans": text}


def _many_sections(files: range, start: int = 0) -> dict[str, str]:
    sections = (
        {"file": "", "id": f"{number}", "start": start, "end": start + 2, "size": 2, "lines": 1}
        for number in files
    )
    return _with_spans(json.dumps(list(sections), separators=(",", ":")))


def _many(attack: Attack, headers: Sequence[dict[str, str]], payload: bytes) -> list[Heard]:
    words = b"".join(_message(attack.subject, payload, one) for one in headers)
    return [attack.connection().say(words)]


def _bomb(size: int) -> bytes:
    """Return a zstd frame that claims, and has, `size` bytes in one line."""
    return zstandard.ZstdCompressor(level=1).compress(bytes(size - 1) + b"\n")


def _push(attack: Attack, target: str) -> list[Heard]:
    name = f"shipper-{BAD}"
    config = {
        "name": name,
        "deliver_subject": target,
        "filter_subject": f"logs.*.{BAD}",
        "ack_policy": "none",
    }
    body = json.dumps({"stream_name": "LOGS", "config": config}).encode()
    call = f"{API}.CONSUMER.CREATE.LOGS.{name}.logs.*.{BAD}"
    client = attack.connection()
    heard = client.publish(call, body, f"{inbox_of(BAD)}.x")
    return [heard, client.publish(attack.subject, b"pushed\n")]


def _subscriptions(attack: Attack) -> list[Heard]:
    inbox = inbox_of(BAD)
    words = b"".join(b"SUB %s.a%d %d\r\n" % (inbox.encode(), one, one) for one in range(20_000))
    return [attack.connection().say(words)]


def _slow_reader(attack: Attack) -> list[Heard]:
    """Ask 2,000 times for its own last line of 64 KiB, and read no answer."""
    client = attack.connection()
    client.publish(attack.subject, b"x" * 65_535 + b"\n")
    call = f"{API}.DIRECT.GET.LOGS.{attack.subject}"
    client.subscribe(f"{inbox_of(BAD)}.slow")
    words = f"PUB {call} {inbox_of(BAD)}.slow 0\r\n\r\n".encode()
    client.shout(words * 2_000)
    time.sleep(0.5)
    return []


def _large_positions(attack: Attack) -> list[Heard]:
    payload = bytes(8_000_000)
    return [attack.connection().publish(_POSITIONS, payload) for _ in range(20)]


def _no_partition(attack: Attack) -> list[Heard]:
    # what it has no right to is in tests/broker/auth/test_forbidden.py
    names = ("p99", "q0", "p", "p00", "*", "p2", "\0", "p0\x1b")
    return attack.publish_to(*(f"logs.{one}.{BAD}" for one in names))


def _bombs(attack: Attack) -> list[Heard]:
    attack.quarantined = 10
    return attack.publish(_bomb(60 * MEBIBYTE), 10, Content_Encoding="zstd")


def _long_ids(attack: Attack) -> list[Heard]:
    attack.quarantined = 50
    return _many(attack, [_ours(id=f"{one:x<60000}") for one in range(50)], b"a line\n")


def _gaps(attack: Attack) -> list[Heard]:
    firsts = (1_000, 2_000)
    sections = [_many_sections(range(n, n + 750), start) for start in (100, 200) for n in firsts]
    return _many(attack, sections, b"x\n" * 750)


def _paths(attack: Attack) -> list[Heard]:
    paths = (
        *("../../../../escaped", "/../escaped", "%2e%2e/escaped", "/x/%00/escaped"),
        *("/" + "y" * 4_000, "/.quarantine/escaped", "/web01.log/%1b[31mescaped"),
    )
    named = [_ours(file=path, id=f"path{number}") for number, path in enumerate(paths)]
    return _many(attack, named, b"a line\n")


def _headers(attack: Attack) -> list[Heard]:
    return [
        heard
        for headers in (
            {"Nats-Rollup": "all"},
            {"Nats-Rollup": "sub"},
            {"Nats-TTL": "1s"},
            {"Nats-Msg-Id": "the same"},
            {"KV-Operation": "PURGE"},
            {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "logs.p0.web01"},
            {"Nats-Expected-Stream": "KV_LOGS_OFFSETS"},
            {"Nats-Batch-Id": "refused", "Nats-Batch-Sequence": "1"},
        )
        for heard in attack.publish(b"a line\n", **headers)
    ]


def _too_large(attack: Attack) -> list[Heard]:
    return [attack.connection().say(b"PUB %s 999999999\r\n" % attack.subject.encode())]


CUT_OFF = "a message over the limit"
DENIED = "a partition that does not exist"
OPERATIONS: dict[str, Operation] = {
    DENIED: _no_partition,
    "ten frames of 60 MB in a line each": _bombs,
    "file ids of 60 KB": _long_ids,
    "a gap in each of 1,500 files": _gaps,
    "paths that lead elsewhere": _paths,
    "headers of JetStream": _headers,
    "its own positions, as large as they can be, 20 times": _large_positions,
    CUT_OFF: _too_large,
    "20,000 subscriptions": _subscriptions,
    "2,000 answers that nobody reads": _slow_reader,
    "a consumer that pushes to a receiver's offset": lambda attack: _push(
        attack, "$KV.LOGS_OFFSETS.p0"
    ),
}
"""All are taken as the bad host's own lines or as nothing, but for these two."""
