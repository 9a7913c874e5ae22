"""Names of segments, and when a segment is full. Decides; never touches a file.

Closed segments stand beside their live file, `<host>.log` as a rule, as `<host>.log.<number>`, numbers going up from
000001, with `.zst` or `.gz` behind when compressed. No live name can be a closed one's.
"""

import hashlib
import re
from collections.abc import Iterable

__all__ = [
    "closed_name",
    "closed_segments",
    "highest_numbers",
    "is_closed",
    "is_due",
    "live_of",
    "plain_name",
    "stem_of",
]

_LONGEST_STEM = 215  # bytes; a file name has 255, and "..p99999.log.000001.zst" must fit behind, ".….new" around it
_CLOSED = re.compile(r"(?P<live>.+)\.(?P<number>[0-9]{6,})(?:\.zst|\.gz)?", re.DOTALL)


def stem_of(host: str, longest: int = _LONGEST_STEM) -> str:
    """Return the file name stem of a host: its name, cut when a file name cannot hold it.

    A cut name is marked with a digest behind two dots, which no host's own name holds.
    """
    encoded = host.encode()
    if len(encoded) <= longest:
        return host
    digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
    return f"{encoded[: longest - 25].decode(errors='ignore')}..{digest}"


def closed_name(live: str, number: int) -> str:
    """Return the name of a closed segment, not compressed."""
    return f"{live}.{number:06d}"


def is_closed(name: str) -> bool:
    """Say whether a name is one that only closed segments may have."""
    return _CLOSED.fullmatch(name) is not None


def live_of(closed: str) -> str:
    """Return the name of the live file that a closed segment came from."""
    found = _CLOSED.fullmatch(closed)
    return found["live"] if found else closed


def plain_name(closed: str) -> str:
    """Return the name that a closed segment has, or had, before it was compressed."""
    return closed.removesuffix(".zst").removesuffix(".gz")


def closed_segments(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Return the closed segments in a listing of the folder: for each live name, number to name."""
    segments: dict[str, dict[int, str]] = {}
    for name in names:
        if found := _CLOSED.fullmatch(name):
            segments.setdefault(found["live"], {})[int(found["number"])] = name
    return segments


def highest_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return the highest segment number of each live name in a listing of the folder."""
    return {live: max(numbers) for live, numbers in closed_segments(names).items()}


def is_due(size: int, more: int, limit: int) -> bool:
    """Say whether a segment of `size` bytes must be closed before `more` bytes are appended.

    A segment is never empty, so a block larger than the limit gets one of its own. A limit of 0 is none.
    """
    return 0 < limit < size + more and size > 0
