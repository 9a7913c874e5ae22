"""A client that sends exactly the given bytes to a nats-server, and returns all its answers."""

import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any

from nats_logship.client.nkey import user_key


@dataclass(frozen=True, slots=True)
class Heard:
    """What came before the server's answer to a ping.

    Errors (`-ERR`), and messages as (subject, payload).
    """

    errors: tuple[str, ...]
    messages: tuple[tuple[str, bytes], ...]
    is_over: bool = False
    """Whether the server has hung up."""


@dataclass(slots=True)
class Raw:
    """A connection; `heard` is the answer to the CONNECT."""

    port: int
    user: str = ""
    password: str = ""
    seed: str = field(default="", repr=False)
    """The seed of an nkey, instead of a user and a password."""
    heard: Heard = field(init=False)
    _socket: socket.socket = field(init=False)
    _file: BufferedReader = field(init=False)
    _sid: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), 10)
        self._file = self._socket.makefile("rb")
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        if self.seed:
            key, told = user_key(self.seed), json.loads(self._line().removeprefix(b"INFO "))
            options |= {"nkey": key.public, "sig": key.sign(told["nonce"]).decode()}
        elif self.user:
            options |= {"user": self.user, "pass": self.password or self.user}
        self.heard = self.say(f"CONNECT {json.dumps(options)}\r\n".encode())

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def publish(
        self, subject: str, payload: bytes = b"{}", reply: str = "", header: str = ""
    ) -> Heard:
        """Publish, with at most one header (`Name: value`)."""
        if not header:
            return self.say(
                f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"
            )
        head = f"NATS/1.0\r\n{header}\r\n\r\n".encode()
        sizes = f"{len(head)} {len(head) + len(payload)}"
        return self.say(f"HPUB {subject} {reply} {sizes}\r\n".encode() + head + payload + b"\r\n")

    def subscribe(self, subject: str, queue: str = "") -> Heard:
        self._sid += 1
        return self.say(f"SUB {subject} {queue} {self._sid}\r\n".encode())

    def ask(self, subject: str, body: Any = None, inbox: str = "_INBOX.raw") -> dict[str, Any]:
        """Return an answer in JSON; raises AssertionError for none."""
        return self.ask_all((subject, body), inbox=inbox)[0]

    def ask_all(self, *asked: tuple[str, Any], inbox: str = "_INBOX.raw") -> list[dict[str, Any]]:
        """Ask all of it at once, and return the answers in that order.

        Raises AssertionError where one is missing.
        """
        self._sid += 1
        reply = f"{inbox}.{self._sid}"
        data = f"SUB {reply}.* {self._sid}\r\nUNSUB {self._sid} {len(asked)}\r\n".encode()
        for number, (subject, body) in enumerate(asked):
            payload = b"" if body is None else json.dumps(body).encode()
            data += (
                f"PUB {subject} {reply}.{number} {len(payload)}\r\n".encode() + payload + b"\r\n"
            )
        answered: dict[str, dict[str, Any]] = {}
        deadline = time.monotonic() + 10
        while len(answered) < len(asked):
            heard = self.say(data)
            assert not heard.errors, heard.errors
            assert time.monotonic() < deadline, f"no answer to some of {asked}"
            answered |= {
                to: json.loads(body) for to, body in heard.messages if to.startswith(reply)
            }
            data = b""
        return [answered[f"{reply}.{number}"] for number in range(len(asked))]

    def shout(self, data: bytes) -> None:
        """Send it, and read no answer."""
        with suppress(OSError):
            self._socket.sendall(data)

    def say(self, data: bytes) -> Heard:
        """Send it, and return all answers of the server."""
        errors: list[str] = []
        messages: list[tuple[str, bytes]] = []
        try:
            self._socket.sendall(data + b"PING\r\n")
            while (line := self._line()) != b"PONG":
                if line.startswith(b"-ERR"):
                    errors.append(line[5:].decode().strip("'"))
                elif line.startswith((b"MSG", b"HMSG")):
                    data = line.split()
                    body = self._file.read(int(data[-1]) + 2)[:-2]
                    head = int(data[-2]) if line.startswith(b"HMSG") else 0
                    messages.append((data[1].decode(), body[head:]))
        except (ConnectionError, EOFError):
            return Heard(tuple(errors), tuple(messages), is_over=True)
        return Heard(tuple(errors), tuple(messages))

    def _line(self) -> bytes:
        if not (line := self._file.readline()):
            raise EOFError
        return line.rstrip(b"\r\n")
