"""Clients that send exactly the given bytes to a nats-server, and return all its answers."""

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any, ClassVar, Self

from nats_logship.client.nkey import user_key

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Answers:
    """Errors and messages (subject, payload) before a pong; `is_over`: the server has hung up."""

    errors: tuple[str, ...]
    messages: tuple[tuple[str, bytes], ...]
    is_over: bool = False


@dataclass(slots=True)
class _Wire:
    """A connection by user and password, or the `seed` of an nkey; `greeting` answers CONNECT."""

    port: int
    user: str = ""
    password: str = ""
    seed: str = field(default="", repr=False)
    greeting: Answers = field(init=False)
    _socket: socket.socket = field(init=False)
    _file: BufferedReader = field(init=False)
    _sid: int = field(init=False, default=0)

    _VERBS: ClassVar[tuple[bytes, ...]] = (b"MSG", b"HMSG")
    _PUBLISH: ClassVar[tuple[str, str]] = ("PUB", "HPUB")

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), _SECONDS)
        self._file = self._socket.makefile("rb")
        info = json.loads(self._read_line().removeprefix(b"INFO "))
        options = dict(self._options())
        if self.seed:
            key = user_key(self.seed)
            options |= {"nkey": key.public, "sig": key.sign(info["nonce"]).decode()}
        elif self.user:
            options |= {"user": self.user, "pass": self.password or self.user}
        self.greeting = self.send(f"CONNECT {json.dumps(options)}\r\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def _options(self) -> Mapping[str, object]:
        raise NotImplementedError

    def send_only(self, data: bytes) -> None:
        with suppress(OSError):
            self._socket.sendall(data)

    def send(self, data: bytes) -> Answers:
        errors: list[str] = []
        messages: list[tuple[str, bytes]] = []
        try:
            self._socket.sendall(data + b"PING\r\n")
            while (line := self._read_line()) != b"PONG":
                verb, *rest = line.split()
                if verb == b"-ERR":
                    errors.append(line[5:].decode().strip("'"))
                elif verb == b"PING":
                    self._socket.sendall(b"PONG\r\n")
                elif verb in self._VERBS:
                    body = self._file.read(int(rest[-1]) + 2)[:-2]
                    head = int(rest[-2]) if verb == b"HMSG" else 0
                    messages.append((rest[0].decode(), body[head:]))
        except (ConnectionError, EOFError):
            return Answers(tuple(errors), tuple(messages), is_over=True)
        return Answers(tuple(errors), tuple(messages))

    def publish(
        self, subject: str, payload: bytes = b"{}", reply: str = "", header: str = ""
    ) -> Answers:
        """Publish, with at most one header (`Name: value`)."""
        head = f"NATS/1.0\r\n{header}\r\n\r\n".encode() if header else b""
        sizes = f"{len(head)} {len(head + payload)}" if header else f"{len(payload)}"
        line = f"{self._PUBLISH[bool(header)]} {subject} {reply} {sizes}\r\n"
        return self.send(line.encode() + head + payload + b"\r\n")

    def _read_line(self) -> bytes:
        if not (line := self._file.readline()):
            raise EOFError
        return line.rstrip(b"\r\n")


class Raw(_Wire):
    def _options(self) -> Mapping[str, object]:
        return {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}

    def subscribe(self, subject: str, queue: str = "") -> Answers:
        self._sid += 1
        return self.send(f"SUB {subject} {queue} {self._sid}\r\n".encode())

    def ask(self, subject: str, body: Any = None, inbox: str = "_INBOX.raw") -> dict[str, Any]:
        return self.ask_all((subject, body), inbox=inbox)[0]

    def ask_all(self, *asked: tuple[str, Any], inbox: str = "_INBOX.raw") -> list[dict[str, Any]]:
        """Send all requests at once; return the answers in order, or raise AssertionError."""
        self._sid += 1
        reply = f"{inbox}.{self._sid}"
        data = f"SUB {reply}.* {self._sid}\r\nUNSUB {self._sid} {len(asked)}\r\n".encode()
        for number, (subject, body) in enumerate(asked):
            payload = b"" if body is None else json.dumps(body).encode()
            line = f"PUB {subject} {reply}.{number} {len(payload)}\r\n"
            data += line.encode() + payload + b"\r\n"
        answered: dict[str, dict[str, Any]] = {}
        deadline = time.monotonic() + _SECONDS
        while len(answered) < len(asked):
            got = self.send(data)
            assert not got.errors, got.errors
            assert time.monotonic() < deadline, f"no answer to some of {asked}"
            answered |= {to: json.loads(body) for to, body in got.messages if to.startswith(reply)}
            data = b""
        return [answered[f"{reply}.{number}"] for number in range(len(asked))]


class Leaf(_Wire):
    """A server of another site, as a leaf node; the server hangs up at the first denial."""

    _VERBS = (b"LMSG", b"HMSG")
    _PUBLISH = ("LMSG", "HMSG")

    def _options(self) -> Mapping[str, object]:
        return {"name": self.user, "server_id": self.user, "domain": self.user, "headers": True}

    def subscribe(self, subject: str) -> Answers:
        return self.send(f"LS+ {subject}\r\n".encode())

    def ask(self, subject: str, body: object, reply: str = "$JSC.R.answer") -> Answers:
        """Return all messages until an answer or an error."""
        self.subscribe(reply)
        got = self.publish(subject, json.dumps(body).encode(), reply)
        deadline = time.monotonic() + _SECONDS
        while not (got.is_over or got.messages) and time.monotonic() < deadline:
            got = self.send(b"")
        return got
