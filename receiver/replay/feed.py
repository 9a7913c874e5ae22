"""All partitions' lines as one stream, in the order in which the broker stored them. The driver's side of slices.

A slice is read by one Spark task; the driver gets them in order, some slices ahead, and judges the spans itself, since
a file's repeats may lie in different slices. What is held is bounded by the slices' limit of bytes.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from broker.app.exits import OperatorError
from broker.app.selection import Selection
from broker.wire.streams import STREAM
from broker.wire.subjects import partition_filter
from receiver.consume import background
from receiver.consume.judging import Judge, Piece
from receiver.replay.again import MOST_HELD, Reader, Refused, taken
from receiver.replay.aside import Aside
from receiver.replay.files import Failed
from receiver.replay.pacing import Pacing
from receiver.replay.sink import Sink
from receiver.source.ranges import Range
from receiver.source.reread import read
from receiver.source.stored import Stored

__all__ = ["LIMIT", "Fetched", "Slice", "Taken", "fetch", "merged"]

LIMIT = 8 * 1024 * 1024
"""Bytes of messages, as stored, that a slice brings at most; one message more at the end."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The sequences `[first, until)` of some partitions."""

    partitions: tuple[int, ...]
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The messages of a slice in the order of their sequences, up to `until`: the slice's, or less at its limit."""

    messages: tuple[Stored, ...]
    until: int
    size: int


def fetch(item: Slice, reader: Reader) -> Fetched | Failed:
    """Read a slice; what goes wrong is an answer."""
    try:
        return _fetch(item, reader)
    except OperatorError as error:
        return Failed(str(error))


def _fetch(item: Slice, reader: Reader) -> Fetched:
    connection = background.connection(reader.servers, reader.access)
    streams = [
        (
            message
            for run in read(
                connection,
                STREAM,
                Range(partition_filter(number), item.first, item.until),
                fail=False,
            )
            for message in run
        )
        for number in item.partitions
    ]
    taken: list[Stored] = []
    size = 0
    for message in heapq.merge(*streams, key=attrgetter("sequence")):
        if reader.selection.wants_host(message.subject.split(".", 2)[-1]):
            taken.append(message)
            size += len(message.payload) + message.header_size
        if size >= LIMIT:
            return Fetched(tuple(taken), message.sequence + 1, size)
    return Fetched(tuple(taken), item.until, size)


Job = Callable[[list[Slice]], "list[Fetched | Failed]"]
"""Fetches slices at once and returns what they brought, in order."""


def merged(whole: Slice, window: int, at_once: int, job: Job, aside: Aside) -> Iterator[Fetched]:
    """Yield the messages of `whole` in order, fetched `at_once` slices of about `window` sequences at a time.

    The next ones are fetched meanwhile, in halved slices where messages are large. Raises OperatorError when a slice could
    not be read.
    """
    widest = window
    asked = _next(whole, whole.first, window, at_once)
    pending = aside.start(partial(job, asked))
    while asked:
        answers = pending.result()
        if any(map(_is_short, asked, answers)):
            window = max(1, window // 2)  # their messages are larger than most
        elif all(map(_is_light, answers)):
            window = min(2 * window, widest)
        following = _next(whole, asked[-1].until, window, at_once)
        if following:
            pending = aside.start(partial(job, following))
        for item, answer in zip(asked, answers, strict=True):
            yield from _whole(item, answer, job, aside)
        asked = following


def _is_short(item: Slice, answer: Fetched | Failed) -> bool:
    return isinstance(answer, Fetched) and answer.until < item.until


def _is_light(answer: Fetched | Failed) -> bool:
    return isinstance(answer, Fetched) and answer.size < LIMIT // 2


def _next(whole: Slice, first: int, window: int, count: int) -> list[Slice]:
    begins = range(first, whole.until, window)[:count]
    return [Slice(whole.partitions, begin, min(begin + window, whole.until)) for begin in begins]


def _whole(item: Slice, fetched: Fetched | Failed, job: Job, aside: Aside) -> Iterator[Fetched]:
    while True:
        if isinstance(fetched, Failed):
            raise OperatorError(fetched.detail)
        yield fetched
        if fetched.until >= item.until:
            return
        item = Slice(item.partitions, fetched.until, item.until)
        (fetched,) = aside.wait(partial(job, [item]))


class Taken:
    """The driver's end: judges messages as a receiver does, and brings their lines to a sink, each when it is due."""

    def __init__(self, selection: Selection, sink: Sink, pacing: Pacing) -> None:
        """Begin with nothing taken."""
        self._judge = Judge(wants=selection.wants_file)
        self._pacing = pacing
        self.sink = sink
        self.lines = self.size = self.refused = 0

    @property
    def findings(self) -> int:
        """How many gaps and repeats of source files were met."""
        return self._judge.found

    def take(self, messages: Iterable[Stored]) -> None:
        """Bring on what messages hold; raises OSError."""
        found: list[Piece | Refused] = []
        size = 0
        for message in messages:
            items = taken(self._judge, message)
            found += items
            size += sum(len(item.payload) for item in items if isinstance(item, Piece))
            if size >= MOST_HELD:
                self._bring_on(found)
                found, size = [], 0
        self._bring_on(found)

    def _bring_on(self, found: Sequence[Piece | Refused]) -> None:
        for refused in found:
            if isinstance(refused, Refused):
                self.refused += 1
                self.sink.refuse(refused)
        pieces = [piece for piece in found if isinstance(piece, Piece)]
        self._pacing.pass_on(pieces, self.sink.take)
        self.lines += sum(piece.payload.count(b"\n") for piece in pieces)
        self.size += sum(len(piece.payload) for piece in pieces)
