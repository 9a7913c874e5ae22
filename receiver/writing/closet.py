"""Closed segments after their commit: compressed, and the oldest removed. Off the hot path, and never a live file.

A segment that an undo may still need is never touched, nor a file that the register of owners does not know. Age counts from
the newest line that is there, and never from later than now: this machine's clock alone may be years ahead at a boot.
"""

import logging
import os
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.faults import fault
from broker.app.sizes import format_size
from receiver.writing import journal, rotation
from receiver.writing.folders import remove_empty, walk, within
from receiver.writing.journal import PreImage
from receiver.writing.keeping import Limits, Segment, superfluous
from receiver.writing.known import Damaged
from receiver.writing.layout import Layout, register_keys
from receiver.writing.opening import read
from receiver.writing.owners import owner_of
from receiver.writing.packing import SUFFIXES, clear_away, pack

__all__ = ["Closet", "Order", "be_modest"]

_MODEST = (
    15  # of 19 steps of niceness: receiving goes first wherever there are fewer cores than work
)

_LOOK_EVERY = 3600 * 1_000_000_000  # nanoseconds
_LAST = 2**62  # behind the numbers of a day's segments
_UNDER_WAY = 1_000_000_000  # nanoseconds: more than kernels stamp files behind their clock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted: `compress` is zstd, gzip or none; `limits` say which closed segments stay.

    Where the layout has a file a day, those of days that are over are closed segments, too.
    """

    output: Path
    state: Path
    compress: str
    limits: Limits = Limits()  # noqa: RUF009 - a frozen value
    layout: Layout = Layout()  # noqa: RUF009 - a frozen value


@dataclass(frozen=True, slots=True)
class _Look:
    """What was there: files, the images of those that an undo may need, and the partitions whose journals are here."""

    names: list[str]
    needed: Mapping[str, PreImage]
    journals: Container[str]


class Closet:
    """Looks after the closed segments of one output folder; used by one thread at a time."""

    def __init__(self, order: Order, clock: Callable[[], int]) -> None:
        """Look at nothing yet; `clock` gives nanoseconds since the epoch."""
        self.order = order
        self._clock = clock
        self._left: set[str] | None = None
        self._needed: dict[str, tuple[str, int]] = {}
        self._told: str | None = None
        self._over: set[str] = set()
        self._look_at = 0
        self._owners: dict[tuple[str, ...], int | None] = {}
        self.removed = 0

    def tidy(self, closed: Iterable[str], stopped: Callable[[], bool]) -> None:
        """Compress the committed segments named, and whatever an earlier look has left; remove what is not to be kept.

        The first look takes in all that are ours and committed. An error is logged once and left for the next look;
        lines are never at stake, since a segment goes only when its compressed form is on disk.
        """
        try:
            self._tidy(closed, stopped)
        except OSError as error:
            self._tell(error)

    def _tidy(self, closed: Iterable[str], stopped: Callable[[], bool]) -> None:
        named = set(closed)
        self._over |= {name for name in named if not rotation.is_closed(name)}
        left = self._first_look() if self._left is None else self._left | self._later_look()
        self._left = left | named | self._needed_no_more()
        self._prune(stopped)  # first: it makes room for what is compressed
        if not self._left:
            return
        failed = None
        for name in sorted(self._left):
            if stopped():
                return
            try:
                with within(self.order.output, name) as path:
                    pack(path, self.order.compress, stopped)
                self._left.discard(name)
            except OSError as error:
                failed = error
        self._prune(stopped)
        if failed:
            self._tell(failed)
        else:
            self._told = None

    def _first_look(self) -> set[str]:
        names = {rotation.plain_name(segment.name) for segment in self._settled(_look(self.order))}
        for name in names:
            with within(self.order.output, name) as path:
                clear_away(path.parent, path.name)
        return names

    def _needed_no_more(self) -> set[str]:
        """Return the segments that a look had to pass over for an undo that can come no more: the next batch has begun."""
        if not self._needed:
            return set()
        needed = _needed(self.order.state)
        free = {
            name for name, (live, number) in self._needed.items() if _is_free(needed, live, number)
        }
        for name in free:
            del self._needed[name]
        return free

    def _later_look(self) -> set[str]:
        """Return the files of days that are over by now; of all other segments we were told when they were closed."""
        now, order = self._clock(), self.order
        if not order.layout.has_date or order.compress not in SUFFIXES or now < self._look_at:
            return set()
        self._look_at = now + _LOOK_EVERY
        return {
            segment.name
            for segment in self._settled(_look(order))
            if segment.day and rotation.plain_name(segment.name) == segment.name
        }

    def _prune(self, stopped: Callable[[], bool]) -> None:
        limits, output = self.order.limits, self.order.output
        if not limits or stopped():
            return
        now = self._clock()
        look = _look(self.order)
        segments = self._settled(look)
        if limits.age or limits.size:
            segments = [sized for segment in segments for sized in _sized(output, segment)]
        if limits.age:
            now = min(now, self._newest(look, segments, now))
        gone = superfluous(segments, limits, now)
        for segment in gone:
            # that's fine: a person, or another receiver
            with suppress(FileNotFoundError), within(output, segment.name) as path:
                path.unlink()
            fault("pruned")
            remove_empty(output, segment.name.rpartition("/")[0])
            self.removed += 1
            logger.debug("removed %s", segment.name)
        if gone:
            logger.info(
                "removed %d closed files that are not to be kept (%s), the last of them %s",
                len(gone),
                format_size(sum(segment.size for segment in gone)),
                gone[-1].name,
            )

    def _newest(self, look: _Look, segments: Iterable[Segment], now: int) -> int:
        """Return the moment of the newest line of any file of ours, in nanoseconds since the epoch.

        While lines are appended a file has the time of this machine: it counts as it was before its batch, and one that a
        batch has begun with since we looked does not.
        """
        moments = [segment.moment for segment in segments]
        moments += [image.moment for image in look.needed.values()]
        for name in look.names:
            live = rotation.plain_name(name)
            if rotation.is_closed(name) or live in look.needed or not self._is_ours(live, look):
                continue
            found = _sized(self.order.output, Segment(live, _LAST, name))
            moments += [one.moment for one in found if one.moment < now - _UNDER_WAY]
        return max(moments, default=now)

    def _settled(self, look: _Look) -> list[Segment]:
        """Return the segments of the partitions whose journals are here, without those that an undo may need."""
        segments = []
        for live, numbers in rotation.closed_segments(look.names).items():
            if not self._is_ours(live, look):
                continue
            for number, name in numbers.items():
                if _is_free(look.needed, live, number):
                    segments.append(_segment(self.order.layout, live, number, name))
                else:
                    self._needed[rotation.plain_name(name)] = (live, number)
        return segments + self._days_over(look)

    def _days_over(self, look: _Look) -> list[Segment]:
        """Return the files of days that are over for their partition: it has one of a later day, or was told to be silent."""
        layout = self.order.layout
        lives = ((rotation.plain_name(name), name) for name in look.names if layout.has_date)
        found = [
            (f"p{self._owner(live)}", layout.date_of(live), live, name)
            for live, name in lives
            if layout.date_of(live) and live not in look.needed
        ]
        last: dict[str, str] = {}
        for partition, date, _, _ in found:
            last[partition] = max(date, last.get(partition, ""))
        return [
            _segment(layout, live, _LAST, name)
            for partition, date, live, name in found
            if partition in look.journals and (date < last[partition] or live in self._over)
        ]

    def _is_ours(self, live: str, look: _Look) -> bool:
        return f"p{self._owner(live)}" in look.journals

    def _owner(self, live: str) -> int | None:
        keys = register_keys(live)  # the same for all days of a file
        if self._owners.get(keys) is None:  # an owner is one for ever
            with suppress(
                Damaged
            ):  # whoever writes there next tells of it; until then it is nobody's
                self._owners[keys] = owner_of(self.order.output, live)
        return self._owners.get(keys)

    def _tell(self, error: OSError) -> None:
        words = f"{error.filename or self.order.output}: {error.strerror or error}"
        if self._told != error.strerror:
            logger.warning("closed files are left as they are for now, %s", words)
        self._told = error.strerror


def be_modest() -> None:
    """Have the calling thread step back behind everybody else's work; for a thread that does nothing but tidy."""
    with suppress(
        PermissionError
    ):  # a sandbox that forbids it; that's fine, it tidies at everybody's rank
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _MODEST)


def _sized(output: Path, segment: Segment) -> list[Segment]:
    try:
        with within(output, segment.name) as path:
            found = path.lstat()
    except FileNotFoundError:
        return []
    return [replace(segment, size=found.st_size, moment=found.st_mtime_ns)]


def _segment(layout: Layout, live: str, number: int, name: str) -> Segment:
    return Segment(layout.of_all_days(live), number, name, day=layout.date_of(live))


def _look(order: Order) -> _Look:
    names = list(walk(order.output))
    needed = _needed(
        order.state
    )  # after the listing: what is in it was announced before it was made
    return _Look(names, needed, {path.stem for path in order.state.glob("p*.journal")})


def _is_free(needed: Mapping[str, PreImage], live: str, number: int) -> bool:
    image = needed.get(live)
    return image is None or number < image.number


def _needed(state: Path) -> Mapping[str, PreImage]:
    """Return the image of each file of a batch that may be undone: the undo needs the segments from its number on."""
    needed: dict[str, PreImage] = {}
    for path in state.glob("p*.journal"):
        try:
            batch = journal.decode(read(path))
        except journal.DamagedJournal as error:
            raise OSError(5, str(error), str(path)) from error
        for image in batch.images if batch and not batch.is_settled else ():
            needed[image.name] = image
    return needed
