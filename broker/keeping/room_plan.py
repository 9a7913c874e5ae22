"""What is to be taken out of the stream, of the messages that were looked at. Decides only."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from broker.keeping.room_marks import Amount
from broker.wire.message import Origin

__all__ = ["Choice", "Removal", "Seen", "Sweep", "by_subject"]

_PARTITION = re.compile(r"logs\.p(0|[1-9][0-9]{0,5})\..")
_MOST = 10_000  # messages of one sweep, which all wait in memory to be removed
_MOST_SECTIONS = 100_000  # of those messages, where their origins were asked for


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that was looked at, without its lines; `size` is what the stream counts for it, in bytes.

    `stored_at` is in nanoseconds since the epoch; `origin` is None where no agent of ours wrote it, or where nobody asked.
    """

    sequence: int
    subject: str
    size: int
    stored_at: int
    origin: Origin | None = None

    @property
    def partition(self) -> int | None:
        """The partition whose receiver is sent it, whatever it makes of the host's name; None where there is none."""
        found = _PARTITION.match(self.subject)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Removal:
    """Messages of a subject to take out: all below sequence `until`, or, where that is None, the one at `sequence`."""

    subject: str
    sequence: int
    until: int | None
    amount: Amount


class Choice(Protocol):
    """What may go, by what is known of a message without its lines."""

    def has(self, partition: int | None, subject: str, sequence: int, stored_at: int) -> bool:
        """Whether a message is among it; `stored_at` is in nanoseconds since the epoch."""
        ...


class Sweep:
    """Takes messages in the order of the stream and chooses which go, the oldest first, until as much went as must."""

    def __init__(self, need: Amount, choice: Choice | None = None) -> None:
        """Choose only what `choice` has; any message where that is None."""
        self._need = need
        self._choice = choice
        self._stay: defaultdict[str, list[int]] = defaultdict(list)
        self.chosen: list[Seen] = []
        self._sections = 0  # of what is chosen
        self.freed = Amount()

    @property
    def is_done(self) -> bool:
        """Whether enough goes, or as much as can be gone about at once."""
        is_much = len(self.chosen) >= _MOST or self._sections >= _MOST_SECTIONS
        return is_much or self.freed.covers(self._need)

    def take(self, seen: Seen) -> None:
        """Look at the next message."""
        if self.is_done or not self._may_go(seen):
            self._stay[seen.subject].append(seen.sequence)
            return
        self.chosen.append(seen)
        self._sections += len(seen.origin.sections) if seen.origin else 0
        self.freed += Amount(seen.size, 1)

    def _may_go(self, seen: Seen) -> bool:
        return self._choice is None or self._choice.has(
            seen.partition, seen.subject, seen.sequence, seen.stored_at
        )

    def removals(self) -> list[Removal]:
        """Return how to take out what was chosen, in few steps: whole beginnings of subjects where nothing stays before.

        Every message of a subject below the last one chosen must have been looked at.
        """
        found = []
        for subject, chosen in by_subject(self.chosen).items():
            lowest = min(self._stay.get(subject, ()), default=chosen[-1].sequence + 1)
            if not _is_nameable(subject):
                lowest = 0
            count = bisect_left([seen.sequence for seen in chosen], lowest)
            if count:
                size = sum(seen.size for seen in chosen[:count])
                until = chosen[count - 1].sequence + 1
                found.append(Removal(subject, chosen[0].sequence, until, Amount(size, count)))
            found += [
                Removal(subject, seen.sequence, None, Amount(seen.size, 1))
                for seen in chosen[count:]
            ]
        return sorted(found, key=attrgetter("sequence"))


def _is_nameable(subject: str) -> bool:
    # bytes that are no text the server cannot be told; and it stores what is sent to `logs.p3.>`, but purges all that it means
    return subject.isprintable() and not {"*", ">"} & set(subject.split("."))


def by_subject(chosen: Iterable[Seen]) -> dict[str, list[Seen]]:
    """Return messages by subject, in order of sequence."""
    found: defaultdict[str, list[Seen]] = defaultdict(list)
    for seen in sorted(chosen, key=attrgetter("sequence")):
        found[seen.subject].append(seen)
    return dict(found)
