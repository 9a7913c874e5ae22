"""Counters of what an agent has done so far, moved by rounds and never by lines."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from shipper.publish.rounds import Round
from shipper.tail.notices import Notice, NoticeKind

__all__ = ["AgentMeter"]

_SECOND = 1_000_000_000


class AgentMeter:
    """The counters of one run of the shipper, over all its sessions; `clock` is nanoseconds since the epoch.

    `observe` is told the seconds from reading the oldest block of a round to its acknowledgement.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0, now."""
        self._clock = clock
        self.since = clock()
        self.lines = self.bytes = self.sent = self.rounds = 0
        self.lost: Counter[str] = Counter()
        self.last_ack: int | None = None
        self.observe: Callable[[float], object] = float
        self._pending: deque[Round] = deque()

    def begin(self) -> None:
        """Forget what was gathered and not acknowledged: it will be gathered again."""
        self._pending.clear()

    def gathered(self, rounds: Sequence[Round]) -> None:
        """Take note of rounds that will be published in this order."""
        self._pending.extend(rounds)

    def acknowledged(self, round_: Round) -> None:
        """Count a round that is stored."""
        self.last_ack = self._clock()
        if self._pending:
            self._pending.popleft()
        self.observe(max(0, self.last_ack - round_.origin.read_at) / _SECOND)
        self.rounds += 1
        self.sent += len(round_.payload)
        for section in round_.origin.sections:
            self.lines += section.lines
            self.bytes += section.span.end - section.span.start

    def noticed(self, notices: Iterable[Notice]) -> None:
        """Count the bytes that were lost, by cause."""
        for notice in notices:
            if notice.lost:
                cause = "deleted" if notice.kind is NoticeKind.GONE else notice.kind.value
                self.lost[cause] += notice.lost

    def unacknowledged(self) -> dict[str, int]:
        """Return when the oldest round that is gathered and not acknowledged was read, by file id."""
        oldest: dict[str, int] = {}
        for round_ in self._pending:
            for section in round_.origin.sections:
                oldest.setdefault(section.span.file, round_.origin.read_at)
        return oldest
