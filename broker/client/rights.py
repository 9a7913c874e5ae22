"""What the server denies it says out of turn: a message to a subject without the right to it is dropped, and its sender would wait in vain."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from broker.client.answer import Denied

__all__ = ["Denials"]

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


class Denials:
    """Waits for violations on behalf of those who have sent something on one client."""

    def __init__(self, inbox: str) -> None:
        """Begin without any; `inbox` is what the subjects begin with on which the client hears answers."""
        self._inbox = inbox
        self._watched: list[tuple[str, asyncio.Future[Denied]]] = []
        self.is_deaf = False
        """Whether the inbox was denied: no answer is heard on this client."""

    @contextmanager
    def watch(self, subject: str) -> "Iterator[asyncio.Future[Denied]]":
        """Yield what ends with the error if the server denies `subject`, or the inbox of all answers, meanwhile."""
        entry = (subject, asyncio.get_running_loop().create_future())
        self._watched.append(entry)
        try:
            yield entry[1]
        finally:
            self._watched.remove(entry)

    def hear(self, words: str) -> None:
        """Take what the server said, in lower case as nats-py hands it on; subjects are told as they were asked for."""
        found = _VIOLATION.search(words.lower())
        if found is None:
            return
        action, subject = found[1], found[2]
        is_inbox = action == "subscription" and subject.startswith(self._inbox.lower())
        self.is_deaf |= is_inbox
        for watched, denied in self._watched:
            if (is_inbox or watched.lower() == subject) and not denied.done():
                named = f"{self._inbox}.>" if is_inbox else watched
                words = f'permissions violation for {action} to "{named}"'
                denied.set_result(Denied(words, named))
