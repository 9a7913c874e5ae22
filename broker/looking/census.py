"""Who ships, and how much: what is known of each host, put together from what the stream tells. Counts; asks nobody.

| known by | what | exact |
|---|---|---|
| the stream's list of subjects | messages | always |
| the last message of each subject | last seen, agent, its file | always |
| headers of messages read one by one | first seen, lines, bytes, files | when all that the stream holds were read |

Where only the newest messages were read, lines and bytes are those of a host's messages that were, scaled up to all of
its messages.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from broker.block import file_of
from broker.looking.message import rfc3339
from broker.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["Census", "HostTraffic", "lines_of", "size_of"]

_MOST_FILES = 20  # by host; what is more is counted


@dataclass(frozen=True, slots=True)
class HostTraffic:
    """What the stream holds of a host.

    `bytes` are those of payloads as they are stored, compressed ones as such. `last_seen` and `first_seen` are when a
    message was stored, in nanoseconds since the epoch; `first_seen` is None where it is not known. `exact` says whether
    `lines` and `bytes` were counted, rather than estimated. `files` are at most 20 paths of `file_count`.
    """

    host: str
    partitions: tuple[int, ...]
    messages: int
    lines: int
    bytes: int
    exact: bool
    first_seen: int | None
    last_seen: int
    agent: str
    file: str
    files: tuple[str, ...]
    file_count: int

    def silent_for(self, now: int) -> float:
        """Return for how many seconds nothing has come; `now` is the broker's clock, in nanoseconds."""
        return max(0.0, (now - self.last_seen) / 1e9)

    def as_json(self, now: int) -> dict[str, Any]:
        """Return it as plain values, times in RFC 3339; the keys stay."""
        first = None if self.first_seen is None else rfc3339(self.first_seen)
        return asdict(self) | {
            "first_seen": first,
            "last_seen": rfc3339(self.last_seen),
            "silent_seconds": round(self.silent_for(now), 3),
        }


def size_of(headers: Mapping[str, str], payload: bytes = b"") -> int:
    """Return the bytes of a message's payload, also where it was left out (`headers_only`)."""
    text = headers.get("Nats-Msg-Size", "")
    return int(text) if text.isascii() and text.isdigit() else len(payload)


def lines_of(headers: Mapping[str, str]) -> int:
    """Return how many lines a message has, as its headers say; those of other clients do not say, and count as one."""
    text = headers.get("Log-Lines", "")
    ours = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if ours else 1


@dataclass(slots=True)
class _Sum:
    """What was counted of a host so far."""

    partitions: set[int]
    messages: int = 0
    last_seen: int = 0
    last_size: int = 0
    last_lines: int = 0
    agent: str = ""
    file: str = ""
    first_seen: int | None = None
    counted: int = 0
    lines: int = 0
    bytes: int = 0


class Census:
    """Counts; what it is told of may come in any order."""

    def __init__(self) -> None:
        """Know nobody yet."""
        self._sums: dict[str, _Sum] = {}
        self._files: dict[str, set[str]] = {}
        self._subjects: dict[str, str | None] = {}

    def holds(self, subject: str, messages: int) -> None:
        """Take in how many messages the stream holds on a subject."""
        if found := self._of(subject):
            found.messages += messages

    def last(self, subject: str, stored_at: int, headers: Mapping[str, str]) -> None:
        """Take in the last message of a subject."""
        found = self._of(subject)
        if found and stored_at >= found.last_seen:
            found.last_seen = stored_at
            found.last_size, found.last_lines = size_of(headers), lines_of(headers)
            found.agent, found.file = headers.get("Log-Agent", ""), file_of(headers)

    def count(self, subject: str, stored_at: int, headers: Mapping[str, str]) -> None:
        """Count one message."""
        found = self._of(subject)
        if found is None:
            return
        found.counted += 1
        found.lines += lines_of(headers)
        found.bytes += size_of(headers)
        if found.first_seen is None or stored_at < found.first_seen:
            found.first_seen = stored_at
        if file := file_of(headers):
            self._files[self._subjects[subject] or ""].add(file)

    def hosts(self, *, whole: bool) -> list[HostTraffic]:
        """Return all hosts by name; `whole` says whether every message that the stream holds was counted."""
        return [self._traffic(host, found, whole) for host, found in sorted(self._sums.items())]

    def _of(self, subject: str) -> _Sum | None:
        if subject not in self._subjects:
            self._subjects[subject] = self._meet(subject)
        host = self._subjects[subject]
        return None if host is None else self._sums[host]

    def _meet(self, subject: str) -> str | None:
        try:
            parsed = Subject.parse(subject)
        except (InvalidSubject, InvalidHost):
            return None  # of nobody; `status` tells of it
        self._sums.setdefault(parsed.host, _Sum(set())).partitions.add(parsed.partition)
        self._files.setdefault(parsed.host, set())
        return parsed.host

    def _traffic(self, host: str, found: _Sum, whole: bool) -> HostTraffic:
        files = self._files[host] or ({found.file} if found.file else set())
        exact = whole or found.counted >= found.messages
        lines, size = found.lines, found.bytes
        if not exact:
            counted = found.counted or 1
            lines = (lines or found.last_lines) * found.messages // counted
            size = (size or found.last_size) * found.messages // counted
        return HostTraffic(
            host=host,
            partitions=tuple(sorted(found.partitions)),
            messages=max(found.messages, found.counted if whole else 0),
            lines=lines,
            bytes=size,
            exact=exact,
            first_seen=found.first_seen if exact else None,
            last_seen=found.last_seen,
            agent=found.agent,
            file=found.file,
            files=tuple(sorted(files)[:_MOST_FILES]),
            file_count=len(files),
        )
