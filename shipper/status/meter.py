"""Counters of what an agent has done so far, moved by rounds and never by lines."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from broker.app.rate import Histogram, Rate
from shipper.publish.rounds import Round
from shipper.tail.notices import Notice, NoticeKind

__all__ = ["Meter"]

_BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)  # seconds
_PRUNE_EVERY = 60.0  # seconds
_SECOND = 1_000_000_000
_CAUSES = {NoticeKind.GONE: "deleted"}


class Meter:
    """The counters of one run of the shipper, over all its sessions; `clock` is nanoseconds since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0, now."""
        self._clock = clock
        self.since = clock()
        self.lines = self.bytes = self.sent = self.rounds = 0
        self.latency = Histogram(_BOUNDS)
        self.lost: Counter[str] = Counter()
        self.last_ack: int | None = None
        self._pending: deque[Round] = deque()
        self._rates: dict[str, Rate] = {}
        self._pruned = 0.0

    def begin(self) -> None:
        """Forget what was gathered and not acknowledged: it will be gathered again."""
        self._pending.clear()

    def gathered(self, rounds: Sequence[Round]) -> None:
        """Take note of rounds that will be published in this order."""
        self._pending.extend(rounds)

    def acknowledged(self, round_: Round) -> None:
        """Count a round that is stored."""
        self.last_ack = self._clock()
        now = self.last_ack / _SECOND
        if self._pending:
            self._pending.popleft()
        self.latency.observe(max(0, self.last_ack - round_.origin.read_at) / _SECOND)
        self.rounds += 1
        self.sent += len(round_.payload)
        for section in round_.origin.sections:
            size = section.span.end - section.span.start
            self.lines += section.lines
            self.bytes += size
            if (rate := self._rates.get(section.span.file)) is None:
                rate = self._rates[section.span.file] = Rate(now, now)
            rate.add(size, section.lines, now)
        if abs(now - self._pruned) >= _PRUNE_EVERY:
            self._pruned = now
            self._rates = {f: rate for f, rate in self._rates.items() if not rate.is_over(now)}

    def noticed(self, notices: Iterable[Notice]) -> None:
        """Count the bytes that were lost, by cause."""
        for notice in notices:
            if notice.lost:
                self.lost[_CAUSES.get(notice.kind, notice.kind.value)] += notice.lost

    def rate(self, file: str) -> tuple[float, float]:
        """Return the bytes and the lines a second of a file, by id, over about the last ten seconds."""
        rate = self._rates.get(file)
        return (0.0, 0.0) if rate is None else rate.per_second(self._clock() / _SECOND)

    def unacknowledged(self) -> dict[str, int]:
        """Return when the oldest round that is gathered and not acknowledged was read, by file id."""
        oldest: dict[str, int] = {}
        for round_ in self._pending:
            for section in round_.origin.sections:
                oldest.setdefault(section.span.file, round_.origin.read_at)
        return oldest
