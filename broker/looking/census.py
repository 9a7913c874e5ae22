"""Who ships, and how much: what is known of each host, put together from what the stream tells. Counts; asks nobody.

| known by | what | exact |
|---|---|---|
| the stream's list of subjects | messages | always |
| the last message of each subject | last seen, agent, its files | always |
| headers of messages read one by one | first seen, lines, bytes, files | when all that the stream holds were read |

Where only the newest messages were read, lines and bytes are those of a host's messages that were, scaled up to all of
its messages. Of messages that a receiver sets aside only the time when they were stored is believed: they
are counted apart, as `set_aside`.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from broker.client.arrived import Arrived
from broker.looking.message import rfc3339
from broker.looking.told import Told, told
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["MOST_COUNTED", "Census", "HostTraffic"]

MOST_COUNTED = 1000
"""The files of a host that are counted; a host may make up paths without end."""

_MOST_FILES = 20  # by host; what is more is counted


@dataclass(frozen=True, slots=True)
class HostTraffic:
    """What the stream holds of a host.

    `bytes` are those of payloads as they are stored, compressed ones as such. `last_seen` and `first_seen` are when a
    message was stored, in nanoseconds since the epoch; `first_seen` is None where it is not known. `exact` says whether
    `lines` and `bytes` were counted, rather than estimated. `files` are at most 20 paths of `file_count`, which is
    1,001 where there are more than 1,000. `file` is
    that of its newest lines. `set_aside` is how many of the messages that were read a receiver would not take for
    lines; they are in no other number. `paused` says until when an operator has paused the host, by whom and why.
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
    set_aside: int = 0
    paused: str | None = None

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


@dataclass(slots=True)
class _Sum:
    """What was counted of a host so far."""

    partitions: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    messages: int = 0
    last_seen: int = 0
    last_told: int = 0
    last_size: int = 0
    last_lines: int = 0
    agent: str = ""
    last_files: tuple[str, ...] = ()
    first_seen: int | None = None
    counted: int = 0
    lines: int = 0
    bytes: int = 0
    set_aside: int = 0

    def hear(self, partition: int, stored_at: int, message: Told | None) -> None:
        """Take in a message, which may be the youngest so far; of one that is set aside only when it was stored."""
        self.partitions.add(partition)
        self.last_seen = max(self.last_seen, stored_at)
        if message is not None and stored_at >= self.last_told:
            self.last_told = stored_at
            self.last_size, self.last_lines = message.size, message.lines
            self.agent, self.last_files = message.agent, message.files

    def name(self, files: Iterable[str]) -> None:
        """Take in paths of files, up to one more than are counted."""
        for file in files:
            if len(self.files) > MOST_COUNTED:
                return
            self.files.add(file)


class Census:
    """Counts; what it is told of may come in any order."""

    def __init__(self) -> None:
        """Know nobody yet."""
        self._sums: dict[str, _Sum] = {}
        self._subjects: dict[str, Subject | None] = {}

    def holds(self, subject: str, messages: int) -> None:
        """Take in how many messages the stream holds on a subject."""
        if parsed := self._parse(subject):
            self._sums[parsed.host].messages += messages

    def last(self, stored_at: int, message: Arrived) -> None:
        """Take in the last message of a subject."""
        if parsed := self._parse(message.subject):
            self._sums[parsed.host].hear(parsed.partition, stored_at, told(message))

    def count(self, stored_at: int, arrived: Arrived) -> None:
        """Count one message."""
        parsed = self._parse(arrived.subject)
        if parsed is None:
            return
        found = self._sums[parsed.host]
        message = told(arrived)
        found.hear(parsed.partition, stored_at, message)
        if message is None:
            found.set_aside += 1
            return
        found.counted += 1
        found.lines += message.lines
        found.bytes += message.size
        if found.first_seen is None or stored_at < found.first_seen:
            found.first_seen = stored_at
        found.name(message.files)

    def hosts(self, *, whole: bool) -> list[HostTraffic]:
        """Return the hosts that were heard of, by name; `whole` says whether every message that the stream holds was counted."""
        heard = [(host, found) for host, found in sorted(self._sums.items()) if found.last_seen]
        return [self._traffic(host, found, whole) for host, found in heard]

    def _parse(self, subject: str) -> Subject | None:
        if subject not in self._subjects:
            try:
                parsed = Subject.parse(subject)
            except (InvalidSubject, InvalidHost):
                self._subjects[subject] = None  # of nobody; `status` tells of it
            else:
                self._subjects[subject] = parsed
                self._sums.setdefault(parsed.host, _Sum())
        return self._subjects[subject]

    def _traffic(self, host: str, found: _Sum, whole: bool) -> HostTraffic:
        files = found.files or set(found.last_files)
        held = max(0, found.messages - found.set_aside)
        exact = whole or found.counted >= held
        lines, size = found.lines, found.bytes
        if not exact:
            counted = found.counted or 1
            lines = (lines or found.last_lines) * held // counted
            size = (size or found.last_size) * held // counted
        return HostTraffic(
            host=host,
            partitions=tuple(sorted(found.partitions)),
            messages=max(held, found.counted),
            lines=lines,
            bytes=size,
            exact=exact,
            first_seen=found.first_seen if exact else None,
            last_seen=found.last_seen,
            agent=found.agent,
            file=found.last_files[-1] if found.last_files else "",
            files=tuple(sorted(files)[:_MOST_FILES]),
            file_count=min(len(files), MOST_COUNTED + 1),
            set_aside=found.set_aside,
        )
