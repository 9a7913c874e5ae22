"""A message as the broker delivered it. Reads its headers, whatever a client wrote there; never raises."""

from functools import lru_cache
from typing import NamedTuple

__all__ = ["Arrived"]

_END = b"\r\n"
_SIZE = b"Nats-Msg-Size: "
_MOST_DIGITS = 10  # of a size


class Arrived(NamedTuple):
    """A message as it came: `head` is its headers on the wire, status line included, empty where it has none."""

    subject: str
    reply: str
    head: bytes
    data: bytes

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers by name, a server's status as `Status` and `Description`; None where there are none."""
        if not self.head:
            return None
        first, *lines = self.head.split(_END)
        status, _, description = first.partition(b" ")[2].decode("utf-8", "replace").partition(" ")
        found = {"Status": status, "Description": description} if status else {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if colon and (key := _header_name(name)) is not None:
                found[key] = value.strip().decode("utf-8", "replace")
        return found or None

    @property
    def size(self) -> int:
        """The bytes of a payload that the server left out (`headers_only`); 0 where it does not tell.

        The server writes it last, whatever a client's own headers are, and however they end.
        """
        return int(_told(self.head) or b"0")

    @property
    def own_head(self) -> int:
        """How many bytes `head` has without the size of the payload that the server added."""
        told = _told(self.head)
        return len(self.head) - (len(_SIZE) + len(told) + len(_END) if told else 0)


def _told(head: bytes) -> bytes:
    """Return the digits of the size that the server added, none where it added none."""
    digits = head.rpartition(_SIZE)[2].removesuffix(_END + _END)
    is_told = _SIZE in head and head.endswith(_END + _END)
    return digits if is_told and digits.isdigit() and len(digits) <= _MOST_DIGITS else b""


@lru_cache(1000)
def _header_name(raw: bytes) -> str | None:
    name = raw.strip()
    return name.decode() if name.isascii() and len(name.split()) == 1 else None
