"""The counters of one run of a shipper."""

from collections import Counter
from collections.abc import Callable, Iterable

from nats_logship.app.timestamps import SECOND
from shipper.publish.rounds import Round
from shipper.sources.notices import Notice, NoticeKind


class AgentMeter:
    """What was acknowledged and what was lost since the start.

    `lost` are bytes by cause, `unread` texts on files that the start did not find, by path.
    `observe` is called with the seconds from reading a round's oldest block to its acknowledgement.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0; `clock` is nanoseconds since the epoch."""
        self._clock = clock
        self.lines = self.bytes = self.sent = self.rounds = 0
        self.lost: Counter[str] = Counter()
        self.unread: dict[str, str] = {}
        self.last_ack: int | None = None
        self.observe: Callable[[float], object] = float

    def count_round(self, round_: Round) -> None:
        """Count a round that is acknowledged now."""
        self.last_ack = self._clock()
        self.observe(max(0, self.last_ack - round_.origin.read_at) / SECOND)
        self.rounds += 1
        self.sent += len(round_.payload)
        for section in round_.origin.sections:
            self.lines += section.lines
            self.bytes += section.span.end - section.span.start

    def count_notices(self, notices: Iterable[Notice]) -> None:
        """Count lost bytes, and keep what is known of files that the start did not find."""
        for notice in notices:
            if notice.kind is NoticeKind.UNREAD:
                self.unread[notice.path] = notice.text
            if notice.lost:
                cause = "deleted" if notice.kind is NoticeKind.GONE else notice.kind.value
                self.lost[cause] += notice.lost
