"""When the sessions of one Spark task end: together, since Spark returns their reports together.

One partition may end before the others: it is blocked, somebody else owns it, or its files were
closed. The others go on for a second, so that the driver soon knows it.

`Arrivals` are the messages on their way from the worker's event loop to a session's thread.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from math import inf

from nats_logship.client.pulling import Delivered
from nats_logship.client.stream_reader import Messages
from receiver.consume.assignment import Ending, SessionLimits

_SOON = 1.0  # seconds


class TaskEnd:
    """The end of a task; its methods may be called in any thread.

    The task lasts as long as `limits` say for a session, or up to a quarter less by chance: tasks
    that began together end apart. It also ends if no session has received anything for `silence`.
    """

    def __init__(self, limits: SessionLimits) -> None:
        """Begin now."""
        self._limits = limits
        self._began = self._active_at = time.monotonic()
        self._until = self._began + limits.longest * random.uniform(0.75, 1)
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []
        self.is_asked = False
        """Whether the driver has asked for the end."""

    @property
    def waits(self) -> bool:
        """Whether sessions wait for new messages."""
        return self._limits.silence > 0

    def on_change(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in any thread, when the task is to end sooner than before."""
        self._wakers.append(wake)

    def ask(self) -> None:
        """End now: the driver asks for it."""
        self.is_asked = True
        self._wake()

    def note_activity(self) -> None:
        """Note that a session has received something."""
        self._active_at = time.monotonic()

    def hasten(self) -> None:
        """End within a second: a session has ended."""
        self._limit(time.monotonic() + _SOON)

    def report_soon(self) -> None:
        """End in time for news to reach the driver."""
        self._limit(self._began + self._limits.report_within)

    def _limit(self, until: float) -> None:
        with self._lock:
            if until >= self._until:
                return
            self._until = until
        self._wake()

    def _wake(self) -> None:
        for wake in self._wakers:
            wake()

    @property
    def is_over(self) -> bool:
        """Whether sessions end although more may come."""
        return self.is_asked or time.monotonic() >= self._until

    @property
    def seconds_left(self) -> float:
        """The seconds until the end if nothing comes, at least 0."""
        if self.is_asked:
            return 0.0
        silent_at = self._active_at + (self._limits.silence or -inf)
        return max(0.0, min(self._until, silent_at) - time.monotonic())

    @property
    def reason(self) -> Ending:
        """Why the task ends, if it ends now."""
        if self.is_asked:
            return Ending.ASKED
        return Ending.TIME if self.is_over else Ending.SILENCE


class Arrivals:
    """The messages that were fetched and not yet taken.

    The loop calls `wait_for`, `add`, `end`, `fail`; a session's thread calls the other methods.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._changed = threading.Condition()
        self._awoken = threading.Event()
        self._messages: list[Delivered] = []
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Future[None] | None = None  # the loop, for the thread
        self.is_wanted = False
        """Whether the thread waits for messages."""
        self.is_ended = False
        """Whether nothing more waits at the broker; only for a session that does not wait."""

    # the loop's side

    @property
    def is_empty(self) -> bool:
        """Whether all messages were taken."""
        return not self._messages

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        """Return when `holds` is true, which only the thread changes."""
        self._loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if holds():
                    return
                waiting = self._waiting = self._loop.create_future()
            await waiting

    def add(self, messages: Messages) -> None:
        """Hand over messages, in the order of their delivery."""
        with self._changed:
            self._messages += messages
            self._changed.notify()

    def end(self) -> None:
        """Note that nothing waits at the broker, until the thread asks again."""
        with self._changed:
            self.is_ended = True
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        """Raise an error in the thread, at its next `take`."""
        with self._changed:
            self._error = error
            self._changed.notify()

    # the thread's side

    def take(self, seconds: float) -> Messages:
        """Return all messages; wait for the first one at most so many seconds.

        Returns nothing after that time, after `awake`, and at the end. Raises the error of `fail`.
        """
        with self._changed:
            if not self._messages:
                self.is_wanted = True
                self._resume_loop()
                self._changed.wait_for(self._has_news, seconds)
                self.is_wanted = False
            self._awoken.clear()
            if self._error:
                raise self._error
            taken, self._messages = self._messages, []
            self._resume_loop()
            return taken

    def _has_news(self) -> bool:
        is_over = self.is_ended or self._awoken.is_set()
        return bool(self._messages or self._error) or is_over

    def pause(self, seconds: float) -> None:
        """Let messages gather for so many seconds, or until `awake`."""
        self._awoken.wait(seconds)
        self._awoken.clear()

    def ask_again(self) -> None:
        """Have the loop fetch again after `end`."""
        with self._changed:
            self.is_ended = False
            self._resume_loop()

    def awake(self) -> None:
        """End a `take` or a `pause` now; may be called in any thread."""
        with self._changed:
            self._awoken.set()
            self._changed.notify()

    def _resume_loop(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
