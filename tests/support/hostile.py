"""Entries of a receiver's offset as an attacker or a damaged disk would write them."""

import json
from dataclasses import replace
from typing import Any

from nats_logship.wire.offset import Offset

ACTIVE = "\x1b[2J\x07\u202e\x9b"
"""What a terminal acts on."""
GOOD = Offset(2, 1, "", "central:1", lines=1, size=9)


def _entry(**changed: Any) -> bytes:
    members = json.loads(GOOD.encode()) | changed
    return json.dumps(members).encode()


GARBAGE = {
    "empty": b"",
    "no JSON": b"\x1b[2Jnot JSON",
    "another type": b"[1, 2]",
    "nested": b'{"a":' * 100_000,
    "a text for a number": _entry(next="2"),
    "a number too large": _entry(next=10**400),
    "a number below zero": _entry(epoch=-1),
    "a number that nothing has": b'{"version": 1, "next": 1e999}',
    "a presence that is no address": _entry(presence="a b\r\nPUB x 0\r\n"),
    "a move that is a text": _entry(moved_in="x"),
}
"""Values of an entry that no program can use."""
ODD = replace(GOOD, owner=f"central{ACTIVE}").encode()
"""An entry that can be gone by, and does something to a terminal."""


def acts_on_a_terminal(text: str) -> bool:
    """Whether there is anything in the text but lines of what can be printed."""
    return not all(line.isprintable() for line in text.splitlines())
