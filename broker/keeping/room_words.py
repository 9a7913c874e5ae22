"""What the keeper of the stream's room says in the log: each thing once, until it is over. Keeps count, decides nothing else."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.app.durations import format_duration
from broker.app.sizes import format_size
from broker.keeping.room_dropped import Dropped, words
from broker.keeping.room_drops import NAME
from broker.keeping.room_marks import Amount, Bounds
from broker.keeping.room_report import Expiring

__all__ = ["Speaker"]

_HOSTS = 20  # that are named at once
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Episode:
    """What was said, and what went, since space ran short."""

    is_making: bool = False
    waits: tuple[int, ...] | None = None
    purged: Amount = Amount()  # noqa: RUF009 - a frozen value
    dropped: Amount = Amount()  # noqa: RUF009 - a frozen value
    hosts: set[str] = field(default_factory=set)


class Speaker:
    """Speaks for one keeper."""

    def __init__(self) -> None:
        """Say nothing yet."""
        self._episode = _Episode()
        self._expiring: set[int] = set()

    def making(self, held: Amount, bounds: Bounds) -> None:
        """Say that space runs short."""
        if not self._episode.is_making:
            limit = _bound(bounds)
            logger.info(
                "space runs short: the stream holds %s in %d messages, of at most %s; what all receivers have goes first",
                format_size(held.size),
                held.messages,
                limit,
            )
        self._episode.is_making = True

    def purged(self, gone: Amount) -> None:
        """Count what went that receivers have."""
        self._episode.purged += gone

    def dropped(self, ranges: Sequence[Dropped]) -> None:
        """Name the hosts whose lines went for the first time since there was room."""
        new = [one for one in ranges if one.host not in self._episode.hosts]
        for one in new[: max(_HOSTS - len(self._episode.hosts), 0)]:
            logger.warning("dropped, and no receiver had it: %s", words(one))
        if len(self._episode.hosts) < _HOSTS <= len(self._episode.hosts) + len(new):
            logger.warning("further hosts whose lines are dropped are named in %s only", NAME)
        self._episode.hosts |= {one.host for one in new}
        self._episode.dropped += Amount(
            sum(one.size for one in ranges), sum(one.messages for one in ranges)
        )

    def waits(self, behind: Sequence[int], drops: bool) -> None:
        """Say that nothing is left that may go; again when other partitions are behind."""
        if self._is_news(behind):
            logger.warning(
                "the stream is full and hosts wait: nothing is left that may go until receivers have more%s; "
                "start their receivers, or give more room by --max-bytes%s",
                _behind(behind),
                "" if drops else ", or lose the oldest lines by --on-full drop-oldest",
            )

    def loses_oldest(self, behind: Sequence[int]) -> None:
        """Say that nats-server removes lines that no receiver has; again when other partitions are behind."""
        if self._is_news(behind):
            logger.warning(
                "the stream is full, and nats-server removes the oldest lines although no receiver has them "
                "(discard: old)%s; start their receivers, give more room by --max-bytes, or have hosts wait by "
                "--discard new",
                _behind(behind),
            )

    def _is_news(self, behind: Sequence[int]) -> bool:
        is_news = self._episode.waits != tuple(behind)
        self._episode.waits = tuple(behind)
        return is_news

    def has_room(self) -> None:
        """Say that it is over, and what it took."""
        if self._episode.dropped.messages:
            logger.warning(
                "there is room again: %d messages, %s of %d hosts were dropped; %s names them",
                self._episode.dropped.messages,
                format_size(self._episode.dropped.size),
                len(self._episode.hosts),
                NAME,
            )
        elif self._episode.purged.messages or self._episode.waits is not None:
            logger.info(
                "there is room again: %d messages, %s, went that receivers have",
                self._episode.purged.messages,
                format_size(self._episode.purged.size),
            )
        self._episode = _Episode()

    def expiring(self, found: Sequence[Expiring], now: int) -> None:
        """Name the partitions whose lines are near the end of their time, each once until that is over."""
        for one in found:
            if one.partition not in self._expiring:
                age = timedelta(seconds=round(now / 1e9 - _seconds(one.stored_at)))
                left = timedelta(seconds=max(round(_seconds(one.expires_at) - now / 1e9), 0))
                logger.warning(
                    "partition %d: lines that no receiver has are %s old and go in %s: of %s; start its receiver, or "
                    "raise --max-age",
                    one.partition,
                    format_duration(age),
                    format_duration(left),
                    ", ".join(one.hosts) or "no host",
                )
        self._expiring = {one.partition for one in found}


def _behind(partitions: Sequence[int]) -> str:
    return f"; behind are partitions {', '.join(map(str, partitions))}" if partitions else ""


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _bound(bounds: Bounds) -> str:
    parts = [format_size(bounds.size)] if bounds.size is not None else []
    parts += [f"{bounds.messages} messages"] if bounds.messages is not None else []
    return " and ".join(parts)
