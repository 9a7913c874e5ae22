"""Messages on their way from the worker's event loop, which fetches, to a session's thread."""

import asyncio
import threading
from collections.abc import Callable

from nats_logship.client.pulling import Delivered
from nats_logship.client.stream_reader import Messages


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
                self._waiting = self._loop.create_future()
            await self._waiting

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
