"""What the server does not let us do: said by it out of turn, and brought to the one whom it concerns.

A message to a subject without the right to it is dropped, and its sender would wait for an answer in vain.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Denials"]

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


class Denials:
    """Waits for violations on behalf of those who have sent something."""

    def __init__(self) -> None:
        """Begin without any."""
        self._inbox = ""
        self._watched: list[tuple[str, asyncio.Future[str]]] = []
        self.is_deaf = False

    def reset(self, inbox_prefix: str) -> None:
        """Forget what the last client was denied; the next one hears answers on what begins with `inbox_prefix`."""
        self._inbox = inbox_prefix.lower()
        self.is_deaf = False

    @contextmanager
    def watch(self, subject: str) -> "Iterator[asyncio.Future[str]]":
        """Yield what ends with the server's words if it denies `subject`, or the inbox of all answers, meanwhile."""
        entry = (subject.lower(), asyncio.get_running_loop().create_future())
        self._watched.append(entry)
        try:
            yield entry[1]
        finally:
            self._watched.remove(entry)

    def hear(self, words: str) -> None:
        """Take what the server said; it names subjects in lower case (nats-py does)."""
        found = _VIOLATION.search(words.lower())
        if found is None:
            return
        subject = found[2]
        inbox = found[1] == "subscription" and subject.startswith(self._inbox)
        self.is_deaf |= inbox
        for watched, denied in self._watched:
            if (inbox or watched == subject) and not denied.done():
                denied.set_result(found[0])
