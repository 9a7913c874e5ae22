"""The messages of a partition, batch by batch, as the thread of a session takes them."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from math import inf

from nats_logship.client import background
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import Messages
from receiver.consume.assignment import Assignment
from receiver.consume.fetch import Fetcher, bytes_of
from receiver.consume.task_end import TaskEnd

_LONGEST = 600.0  # seconds for a pull to end
_GATHER = 1.0  # seconds of a batch: a fleet may write small messages as fast as they are read
_LINES = 100  # that are worth an append to a few files
_LEAST_LINGER = 0.125  # of the longest


class PartitionReader:
    """The messages of a partition from `first` on, for one session until the `end` of its task."""

    def __init__(
        self, connection: Connection, assignment: Assignment, first: int, stream: str, end: TaskEnd
    ) -> None:
        """Ask nothing yet."""
        self._connection, self._assignment, self._end = connection, assignment, end
        self._fetcher = Fetcher(connection, assignment, first, stream, end)
        self._arrivals = self._fetcher.arrivals
        self._linger = _Linger(assignment.session.linger)
        self._fetching: Future[None] | None = None
        self._left_over: Messages = ()
        self._is_ended = self._is_behind = False
        self._incoming = 0  # bytes of an incomplete message

    @property
    def waits(self) -> bool:
        """Whether the session waits for new messages."""
        return self._fetcher.waits

    def pull_batch(self) -> Iterator[Messages]:
        """Yield the messages of a batch, up to about its limit of bytes.

        Waits for the first message until the task ends; the batch ends when it is due for its
        commit, but while more messages wait at the broker it takes them for a second at least. A
        session that does not wait for new messages takes those, and ends the batch with the last.
        Raises `ConnectionLost`, `Rejected` or TimeoutError; the next session resets the consumer.
        """
        gather = self._assignment.session.commit_every if self.waits else _GATHER
        size, began, due, self._is_ended = 0, inf, inf, False
        self._arrivals.ask_again()
        while messages := self._take(due):
            began = min(began, time.monotonic())
            size += bytes_of(messages)
            yield messages
            due = began + (max(gather, _GATHER) if self._is_behind else gather)
            is_full = size >= self._assignment.limit
            if is_full or self._is_ended or time.monotonic() >= due:
                return

    def end_batch(self, rest: Messages) -> None:
        """End the batch; the next one begins with `rest`, the end of the messages yielded last."""
        self._left_over, self._is_ended = rest, True

    def note_lines(self, count: int) -> None:
        """Note how many lines the messages had that were yielded last."""
        self._linger.adapt(count)

    def _take(self, due: float) -> Messages:
        """Return what has come, or what comes until `due` (monotonic) or the end of the task."""
        if messages := self._left_over:
            self._left_over = ()
            return messages
        while (left := self._seconds_left(due)) > 0:
            if (pause := self._linger.seconds_left) > 0 and not self._is_behind:
                self._arrivals.pause(min(pause, left))
            elif messages := self._arrivals.take(left):
                self._end.note_activity()
                self._is_behind = messages[-1][0].pending > 0
                self._linger.begin()
                return messages
            elif self._arrivals.is_ended:
                break
            else:  # what waited at the broker may be gone: then the batch must not wait for it
                self._is_behind = self._fetcher.has_pending
        return ()

    def _seconds_left(self, due: float) -> float:
        """Return for how long to wait; while messages wait at the broker, until they come or go."""
        if self._end.is_asked:
            return 0.0
        if self._is_behind or not (self.waits and self._fetcher.is_ready):
            return _LONGEST
        if (incoming := self._connection.incoming) > self._incoming:
            self._end.note_activity()  # a large message on a slow line
        self._incoming = incoming
        return min(self._end.seconds_left, due - time.monotonic())

    def __enter__(self) -> "PartitionReader":
        self._end.on_change(self._arrivals.awake)
        self._fetching = background.submit(self._fetcher.run())
        self._fetching.add_done_callback(self._note_end)
        return self

    def _note_end(self, fetching: Future[None]) -> None:
        if not fetching.cancelled() and (error := fetching.exception()):
            self._arrivals.fail(error)

    def __exit__(self, *_: object) -> None:
        if self._fetching:
            self._fetching.cancel()


class _Linger:
    """How long messages gather before they are written: `longest` seconds, less for many lines.

    It ends at whole multiples of that time, so that the partitions of a process write one after the
    other: what runs once a second alone takes four times the CPU, since no cache has it any more.
    """

    def __init__(self, longest: float) -> None:
        self._longest = self._now = longest
        self._passed, self._took_at, self._until = 0.0, -inf, -inf

    def begin(self) -> None:
        """Begin after messages were taken."""
        before, self._took_at = self._took_at, time.monotonic()
        self._passed = self._took_at - before
        self._until = self._took_at
        if self._now:
            self._until += self._now - self._took_at % self._now

    def adapt(self, lines: int) -> None:
        """Linger for about as long as some `_LINES` lines need."""
        expected = _LINES * self._passed / max(1, lines)
        self._now = min(self._longest, max(_LEAST_LINGER * self._longest, expected))

    @property
    def seconds_left(self) -> float:
        """The seconds that are left; 0 or less if none are."""
        return self._until - time.monotonic()
