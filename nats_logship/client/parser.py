r"""Cuts the bytes that a nats-server sends into messages and control lines; does no I/O.

The server sends lines that end with CR LF. A line that announces a message is followed by its
bytes and another CR LF:

    MSG <subject> <subscription> [<reply>] <bytes>\r\n<payload>\r\n
    HMSG <subject> <subscription> [<reply>] <header bytes> <bytes>\r\n<headers><payload>\r\n
    PING, PONG, +OK, -ERR <text>, INFO <JSON>

Blanks and tabs part the words of a line. Any other white space belongs to the word that it is in.

Measured, receiving one message with headers, least of four runs on two busy cores (nats-py 2.16.0):

                                                  700 bytes      1 MiB
    nats-py's loop and parser, a callback       6.1 us of CPU    590 us of CPU, 1.1 ms in all
    its parser extended, reading 256 KiB        2.7 us           1,250 us,      2.2 ms
    this parser, reading 256 KiB                2.2 us           410 us,        0.8 ms
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nats_logship.wire.delivery import RawMessage

MAX_LINE = 64 * 1024
"""Bytes of the longest line, CR LF included: a server's INFO names all servers of its cluster."""
MAX_MESSAGE = 64 * 1024**2
"""Bytes of the largest message: no nats-server accepts a larger `max_payload`."""

_END = b"\r\n"
_WORDS = rb"[ \t]+([^ \t\r\n]+)[ \t]+([0-9]{1,18})[ \t]+(?:([^ \t\r\n]+)[ \t]+)?"
_PLAIN = re.compile(rb"MSG%b()([0-9]{1,8})[ \t]*\r\n" % _WORDS)
_WITH_HEADERS = re.compile(rb"HMSG%b([0-9]{1,8})[ \t]+([0-9]{1,8})[ \t]*\r\n" % _WORDS)
_CONTROL = re.compile(rb"(?:(PING|PONG|\+OK)[ \t]*|(-ERR|INFO)((?:[ \t][^\r\n]*)?))\r\n")
_M = ord("M")


class Malformed(ValueError):
    """The bytes break the protocol: nothing after them can be read."""


class Received(NamedTuple):
    """A message, and the number that its subscription got from us."""

    subscription: int
    message: RawMessage


class Control(NamedTuple):
    """A line that is no message: `PING`, `PONG`, `+OK`, `-ERR` or `INFO`, and the text after it."""

    name: str
    text: bytes


class Parser:
    """Keeps an incomplete line or message until the rest is read, and never more than that."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0  # bytes in `_pieces`
        self._needed = 0  # bytes that the message in `_pieces` has with its line; 0 for a line

    @property
    def is_amid_message(self) -> bool:
        """Whether the line of a message has been read, and not all of the message."""
        return self._needed > 0

    def read(self, piece: bytes) -> Iterator[Received | Control]:
        """Return what is complete with the next piece, however the pieces were cut.

        Raises `Malformed` after what came before the malformed line.
        """
        self._pieces.append(piece)
        self._held += len(piece)
        if not self._may_be_complete(piece):
            return
        text, at = b"".join(self._pieces), 0
        self._pieces, self._held, self._needed = [], 0, 0
        while at < len(text):
            pattern = _PLAIN if text[at] == _M else _WITH_HEADERS
            if (line := pattern.match(text, at, at + MAX_LINE)) is None:
                control, end = _cut_control(text, at)
                if control is None:
                    break
                yield control
            else:
                message, end = _cut_message(text, line)
                if message is None:
                    self._needed = end - at
                    break
                yield message
            at = end
        if at < len(text):
            self._pieces, self._held = [text[at:]], len(text) - at

    def _may_be_complete(self, piece: bytes) -> bool:
        if self._needed:
            return self._held >= self._needed
        return b"\n" in piece or self._held >= MAX_LINE


def _cut_message(text: bytes, line: re.Match[bytes]) -> tuple[Received | None, int]:
    """Return the message that a line announces and where it ends; None if it is not complete."""
    subject, number, reply, head_size, size = line.groups()
    start = line.end()
    body, end = start + int(head_size or 0), start + int(size)
    if not start <= body <= end <= start + MAX_MESSAGE:
        raise Malformed(f"the server sent a message of an impossible size: {line[0][:100]!r}")
    after = end + len(_END)
    if after > len(text):
        return None, after
    if text[end:after] != _END:
        raise Malformed(f"the server sent a message longer than it says: {line[0][:100]!r}")
    message = RawMessage(
        subject.decode("utf-8", "surrogateescape"),
        reply.decode("utf-8", "surrogateescape") if reply else "",
        text[start:body],
        text[body:end],
    )
    return Received(int(number), message), after


def _cut_control(text: bytes, at: int) -> tuple[Control | None, int]:
    """Return the control line at `at` and where it ends; None where its end is not there yet."""
    if line := _CONTROL.match(text, at, at + MAX_LINE):
        name = line[1] or line[2]
        return Control(name.decode(), (line[3] or b"").strip()), line.end()
    shown = repr(text[at : at + 100])
    if text.find(_END, at, at + MAX_LINE) >= 0:
        raise Malformed(f"the server sent a line that is no operation: {shown}")
    if len(text) - at >= MAX_LINE:
        raise Malformed(f"the server sent a line of more than {MAX_LINE} bytes: {shown}")
    return None, at
