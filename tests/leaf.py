"""A server of another site, a leaf node, that sends exactly the given bytes."""

import json
import socket
import time
from dataclasses import dataclass, field
from io import BufferedReader

from nats_logship.client.nkey import user_key
from tests.raw import Heard


@dataclass(slots=True)
class Leaf:
    """A connection to where leaf nodes connect; the server ends it at the first denial."""

    port: int
    user: str = ""
    seed: str = field(default="", repr=False)
    """The seed of an nkey, instead of a user who is their own password."""
    _socket: socket.socket = field(init=False)
    _file: BufferedReader = field(init=False)

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), 10)
        self._file = self._socket.makefile("rb")
        told = json.loads(self._file.readline().removeprefix(b"INFO "))
        options = {"name": self.user, "server_id": self.user, "domain": self.user, "headers": True}
        if self.seed:
            key = user_key(self.seed)
            options |= {"nkey": key.public, "sig": key.sign(told["nonce"]).decode()}
        else:
            options |= {"user": self.user, "pass": self.user}
        self._socket.sendall(f"CONNECT {json.dumps(options)}\r\n".encode())

    def __enter__(self) -> "Leaf":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", header: str = ""
    ) -> Heard:
        """Deliver a message to the server, with at most one header (`Name: value`)."""
        head = f"NATS/1.0\r\n{header}\r\n\r\n".encode() if header else b""
        verb = f"HMSG {subject} {reply} {len(head)}" if header else f"LMSG {subject} {reply}"
        return self.say(f"{verb} {len(head + payload)}\r\n".encode() + head + payload + b"\r\n")

    def subscribe(self, subject: str) -> Heard:
        return self.say(f"LS+ {subject}\r\n".encode())

    def ask(self, subject: str, body: object, reply: str = "$JSC.R.answer") -> Heard:
        """Return all messages until an answer or an error."""
        self.subscribe(reply)
        heard = self.publish(subject, json.dumps(body).encode(), reply)
        deadline = time.monotonic() + 10
        while not (heard.is_over or heard.messages) and time.monotonic() < deadline:
            heard = self.say(b"")
        return heard

    def say(self, data: bytes) -> Heard:
        """Send it, and return all answers of the server."""
        errors: list[str] = []
        messages: list[tuple[str, bytes]] = []
        try:
            self._socket.sendall(data + b"PING\r\n")
            while (line := self._line()) != b"PONG":
                verb, _, rest = line.partition(b" ")
                if verb == b"-ERR":
                    errors.append(rest.decode().strip("'"))
                elif verb == b"PING":
                    self._socket.sendall(b"PONG\r\n")
                elif verb in {b"LMSG", b"HMSG"}:
                    told = rest.split()
                    body = self._file.read(int(told[-1]) + 2)[:-2]
                    head = int(told[-2]) if verb == b"HMSG" else 0
                    messages.append((told[0].decode(), body[head:]))
        except (ConnectionError, EOFError):
            return Heard(tuple(errors), tuple(messages), is_over=True)
        return Heard(tuple(errors), tuple(messages))

    def _line(self) -> bytes:
        if not (line := self._file.readline()):
            raise EOFError
        return line.rstrip(b"\r\n")
