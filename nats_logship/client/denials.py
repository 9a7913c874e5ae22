"""Requests that the server denied. It drops them without an answer, and only reports an error."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from nats_logship.client.answer import Denied

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
