"""A checksum as the last member of a JSON object: a digit that changed on a disk would still be a number.

Where there is none an older program wrote, or what changed is its name.
"""

from collections.abc import Mapping
from zlib import crc32

__all__ = ["closed", "is_intact"]

_CHECKSUM = b', "crc32": '


def closed(body: bytes) -> bytes:
    """Return an object that lacks its closing brace as it is stored: with a checksum of what stands before it."""
    return b'%b%b"%08x"}' % (body, _CHECKSUM, crc32(body))


def is_intact(data: bytes, members: Mapping[str, object]) -> bool:
    """Say whether a stored object, whose members are read already, is as it was written."""
    checksum = f"{crc32(data[: data.rfind(_CHECKSUM)]):08x}"
    return members.get("crc32", checksum) == checksum
