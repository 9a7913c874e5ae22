"""What the server does not let us do: said by it out of turn, and brought to the one whom it concerns.

A message to a subject without the right to it is dropped, and its sender would wait for an answer in vain.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Denials", "Violation"]

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Violation:
    """What was denied: an action on a subject, which for all answers together ends in `>`."""

    action: str
    subject: str

    def __str__(self) -> str:
        return f'permissions violation for {self.action} to "{self.subject}"'


class Denials:
    """Waits for violations on behalf of those who have sent something."""

    def __init__(self) -> None:
        """Begin without any."""
        self._inbox = ""
        self._watched: list[tuple[str, asyncio.Future[Violation]]] = []
        self.is_deaf = False

    def reset(self, inbox_prefix: str) -> None:
        """Forget what the last client was denied; the next one hears answers on what begins with `inbox_prefix`."""
        self._inbox = inbox_prefix
        self.is_deaf = False

    @contextmanager
    def watch(self, subject: str) -> "Iterator[asyncio.Future[Violation]]":
        """Yield what ends with the violation if the server denies `subject`, or the inbox of all answers, meanwhile."""
        entry = (subject, asyncio.get_running_loop().create_future())
        self._watched.append(entry)
        try:
            yield entry[1]
        finally:
            self._watched.remove(entry)

    def hear(self, words: str) -> None:
        """Take what the server said, in lower case as nats-py hands it on; subjects are told as they were asked for.

        Which of the inboxes was denied says nothing: none of them is ours.
        """
        found = _VIOLATION.search(words.lower())
        if found is None:
            return
        action, subject = found[1], found[2]
        inbox = action == "subscription" and subject.startswith(self._inbox.lower())
        self.is_deaf |= inbox
        for watched, denied in self._watched:
            if (inbox or watched.lower() == subject) and not denied.done():
                denied.set_result(Violation(action, f"{self._inbox}.>" if inbox else watched))
