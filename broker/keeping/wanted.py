"""Which messages a person wants out of the stream, and what that comes to. Decides only."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.app.printable import printable
from broker.app.selection import Selection
from broker.app.sizes import format_size
from broker.keeping.room_marks import Amount
from broker.keeping.room_plan import Choice, Seen
from broker.looking.message import rfc3339
from broker.wire.subjects import (
    InvalidHost,
    InvalidSubject,
    Subject,
    host_filter,
    partition_filter,
    validate_host,
)

__all__ = ["Tally", "Wanted"]

_GLOB = frozenset("*?[")
_SHOWN = 20  # hosts
_ALL = "logs.>"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages below sequence `until` that were stored before `before` (nanoseconds since the epoch, None for any time).

    Of these hosts (globs) and partitions, none meaning all; with `received`, only what that has.
    """

    until: int
    before: int | None = None
    hosts: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    received: Choice | None = None

    def has(self, partition: int | None, subject: str, sequence: int, stored_at: int) -> bool:
        """Whether a message is wanted."""
        if sequence >= self.until or (self.before is not None and stored_at >= self.before):
            return False
        if self.partitions and partition not in self.partitions:
            return False
        if self.hosts and not _is_of(self.hosts, subject):
            return False
        return self.received is None or self.received.has(partition, subject, sequence, stored_at)

    @property
    def filters(self) -> list[str]:
        """The subject filters that take in all that can be wanted."""
        if self.hosts and all(map(_is_name, self.hosts)):
            return sorted({host_filter(host) for host in self.hosts})
        if self.partitions:
            return [partition_filter(partition) for partition in self.partitions]
        return [_ALL]


def _is_name(host: str) -> bool:
    try:
        return not _GLOB & set(validate_host(host))
    except InvalidHost:
        return False


def _is_of(hosts: tuple[str, ...], subject: str) -> bool:
    try:
        return Selection(hosts).wants_host(Subject.parse(subject).host)
    except (InvalidSubject, InvalidHost):
        return False  # of no host that a glob could mean


@dataclass(slots=True)
class _Part:
    amount: Amount = field(default_factory=Amount)
    first: int = 0
    last: int = 0
    from_: int = 0
    to: int = 0

    def add(self, seen: Seen) -> None:
        if not self.amount.messages:
            self.first, self.from_ = seen.sequence, seen.stored_at
        self.amount += Amount(seen.size, 1)
        self.last, self.to = seen.sequence, seen.stored_at

    def words(self) -> str:
        return (
            f"{self.amount.messages} messages ({format_size(self.amount.size)}), sequences {self.first} to {self.last}, "
            f"stored {rfc3339(self.from_)} to {rfc3339(self.to)}"
        )


class Tally:
    """What is counted of the messages that would go, in the order of the stream."""

    def __init__(self, received: Choice) -> None:
        """Begin with nothing; `received` knows what all receivers have."""
        self._received = received
        self._subjects: dict[str, _Part] = {}
        self._all = _Part()
        self._unreceived = _Part()

    @property
    def amount(self) -> Amount:
        """How much would go."""
        return self._all.amount

    @property
    def unreceived(self) -> Amount:
        """How much of it no receiver has."""
        return self._unreceived.amount

    def add(self, messages: Iterable[Seen]) -> None:
        """Count messages that would go."""
        for seen in messages:
            self._all.add(seen)
            self._subjects.setdefault(seen.subject, _Part()).add(seen)
            if not self._received.has(seen.partition, seen.subject, seen.sequence, seen.stored_at):
                self._unreceived.add(seen)

    def lines(self) -> list[str]:
        """Return it for a person: what goes, what of it nobody has received, and each subject, the largest first."""
        if not self.amount.messages:
            return ["nothing would be removed: no message in the stream matches"]
        found = [f"{self._all.words()}, of {len(self._subjects)} subjects"]
        if self.unreceived.messages:
            found.append(
                f"NOT RECEIVED of that: {self._unreceived.words()}; receivers will name them as missing"
            )
        largest = sorted(self._subjects.items(), key=lambda part: -part[1].amount.size)
        found += [f"  {printable(subject)}: {part.words()}" for subject, part in largest[:_SHOWN]]
        if len(largest) > _SHOWN:
            found.append(f"  and {len(largest) - _SHOWN} subjects more")
        return found
