"""What the outcomes of requests say of the server. Decides only.

It drops a request that it denies without an answer, and only reports an error. How long an answer
may take depends on what is under way. A server may have lost its cluster.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.client.client import DIRECT_BYTES
from nats_logship.wire.streams import SLOWEST_LINK

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


class Denials:
    """The subjects of requests that are under way, and whether our inbox was denied."""

    def __init__(self) -> None:
        self.is_deaf = False
        """Whether we may not subscribe to our inbox: no answer arrives."""
        self._watched: list[tuple[str, asyncio.Future[Denied]]] = []

    @contextmanager
    def watch(self, subject: str) -> Iterator["asyncio.Future[Denied]"]:
        """Yield a future for the error if a request to `subject`, or its answer, is denied."""
        denied: asyncio.Future[Denied] = asyncio.get_running_loop().create_future()
        self._watched.append(watch := (subject, denied))
        try:
            yield denied
        finally:
            self._watched.remove(watch)

    def note_error(self, error: Exception, inbox: str) -> None:
        """Take an error of nats-py, perhaps in lower case; `inbox` is the prefix of inboxes."""
        found = _VIOLATION.search(str(error).lower())
        if found is None:
            return
        action, subject = found[1], found[2]
        is_inbox = action == "subscription" and subject.startswith(inbox.lower())
        self.is_deaf |= is_inbox
        for watched, denied in self._watched:
            if (is_inbox or watched.lower() == subject) and not denied.done():
                named = f"{inbox}.>" if is_inbox else watched
                denied.set_result(Denied(f'permissions violation for {action} to "{named}"'))


_MAX_SILENCE = 4.5  # seconds without an answer; a server may need them to notice a dead server
_MAX_REFUSALS = 12.0  # seconds without a leader; elections take four to nine
_SLOWER = 10  # an answer is late if the network is this much slower than before
_MOMENT = 0.001  # seconds


class AnswerTimes:
    """The requests of one client that are under way, and the outcome of those before."""

    def __init__(self) -> None:
        self._under_way = 0  # bytes of requests without an answer
        self._rate = 0.0  # bytes a second of the last large request
        self._doubted: float | None = None  # since when no leader has answered

    def forget(self) -> None:
        """Begin with a new client, whose requests may go another way."""
        self._rate, self._doubted = 0.0, None

    def seconds_for(self, size: int) -> float:
        """Return how long `size` bytes may take, with all that is under way before them."""
        return (self._under_way + size) / max(SLOWEST_LINK, self._rate / _SLOWER)

    def start(self, size: int) -> None:
        """Note that a request of `size` bytes is under way."""
        self._under_way += size

    def stop(self, size: int) -> None:
        """Note that a request is no longer under way."""
        self._under_way -= size

    def note_answer(self, size: int, seconds: float) -> None:
        """Note that a request of `size` bytes was answered in `seconds`."""
        if size >= DIRECT_BYTES:
            self._rate = size / (seconds + _MOMENT)

    def has_lost_cluster(
        self, now: float, seconds: float, error: ConnectionLost | Rejected | None
    ) -> bool:
        """Whether the server seems to have lost its cluster, after a request of `seconds`.

        A server that lost contact with the others accepts requests, and no leader answers them.
        """
        if isinstance(error, Rejected) and error.is_conflict:
            return False  # such a server says so too: it has kept our own write
        if error is None or (isinstance(error, Rejected) and not error.is_leaderless):
            self._doubted = None
            return False
        self._doubted = min(now - seconds, self._doubted or now)
        most = _MAX_REFUSALS if isinstance(error, Rejected) else _MAX_SILENCE
        return now - self._doubted >= most
