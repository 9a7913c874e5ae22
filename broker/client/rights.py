"""What the server lets a connection do: where JetStream's API is, which inbox is heard, what is denied.

The API is under `$JS.API`, or under the prefix that our account imports it by: what the server says of our rights
(`$SYS.REQ.USER.INFO`) tells. A user without limits that has the API under another prefix cannot be told from one that has
it where it usually is: that prefix must be given. What the server denies it says out of turn; a message to a subject
without the right to it is dropped, and its sender would wait for an answer in vain.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from broker.client.access import Access
from broker.client.answer import Rejected
from broker.client.credentials import ClientCredentials
from broker.wire.subjects import inbox_of

if TYPE_CHECKING:
    from broker.client.connection import Connection

__all__ = [
    "ANYBODY",
    "JETSTREAM",
    "Api",
    "Denials",
    "Inboxes",
    "Violation",
    "find_api",
    "may_publish",
]

JETSTREAM = "$JS.API"
"""The prefix for who is in the account with the stream."""

_CALL = re.compile(r"([^*>]+?)\.(?:CONSUMER|DIRECT|STREAM)\..+")
ANYBODY = "_INBOX"
"""The prefix of every client that has none of its own."""

_WHO_AM_I = "$SYS.REQ.USER.INFO"
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


def may_publish(permissions: Mapping[str, Any] | None, subject: str) -> bool:
    """Whether permissions, None for a user without limits, let a message go to `subject`."""
    publish = (permissions or {}).get("publish")
    if publish is None:
        return True
    allowed, denied = publish.get("allow"), publish.get("deny") or ()
    if any(_covers(pattern, subject) for pattern in denied):
        return False
    return allowed is None or any(_covers(pattern, subject) for pattern in allowed)


def _covers(pattern: str, subject: str) -> bool:
    tokens, parts = pattern.split("."), subject.split(".")
    if tokens[-1] == ">":
        tokens = tokens[:-1]
        if len(parts) <= len(tokens):
            return False
        parts = parts[: len(tokens)]
    return len(tokens) == len(parts) and all(
        token in {"*", part} for token, part in zip(tokens, parts, strict=True)
    )


class Api:
    """Where the JetStream API is for one user."""

    def __init__(self, permissions: Mapping[str, Any] | None = None, prefix: str = "") -> None:
        """Go by the rights, None for a user without limits, or by a prefix that was given."""
        self.permissions = permissions
        self._prefix = prefix or _prefix_in(permissions)

    @classmethod
    def told(cls, answer: bytes) -> "Api":
        """Go by what the server says of us; by nothing where it says nothing that can be read."""
        try:
            return cls(json.loads(answer)["data"].get("permissions"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def subject(self, call: str) -> str:
        """Return the subject of a call, such as `STREAM.INFO.LOGS`."""
        return f"{self._prefix}.{call}"


def _prefix_in(permissions: Mapping[str, Any] | None) -> str:
    """Return the first prefix that rights name beside the usual one."""
    allowed = ((permissions or {}).get("publish") or {}).get("allow") or ()
    found = (match[1] for pattern in allowed if (match := _CALL.fullmatch(pattern)))
    return next((prefix for prefix in found if prefix != JETSTREAM), JETSTREAM)


class Inboxes:
    """The prefixes of a connection's inboxes, the one in use first."""

    def __init__(self, access: Access, servers: Sequence[str], prefixes: Sequence[str]) -> None:
        """Begin with the first; one that a person gave is the only one. A user's name may stand in the addresses."""
        self._prefixes = [access.inbox_prefix] if access.inbox_prefix else list(prefixes)
        named = (urlsplit(server).username for server in servers)
        self._user = access.user or next(filter(None, named), "")
        self._tried = 0

    @property
    def prefix(self) -> str:
        """The one in use."""
        return self._prefixes[0]

    @property
    def own(self) -> str:
        """What tells the one in use from that of everybody; empty where it is that."""
        return self.prefix.partition(f"{ANYBODY}_")[2]

    def know(self, credentials: ClientCredentials) -> None:
        """Go by what the settings or the credential file say, and nothing else; else by a user's name before everybody's."""
        if credentials.inbox_prefix:
            self._prefixes, self._tried = [credentials.inbox_prefix], 0
        elif self._user and self._prefixes == [ANYBODY]:
            self._prefixes.insert(0, inbox_of(self._user))

    def next(self) -> bool:
        """Go on to the next prefix, after the one in use was denied; False when all of them were, and begin again."""
        self._prefixes.append(self._prefixes.pop(0))
        self._tried = (self._tried + 1) % len(self._prefixes)
        return self._tried != 0


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


async def find_api(
    connection: "Connection", prefix: str, inboxes: Inboxes, denials: Denials
) -> Api:
    """Return the API by the prefix that is known, else by our rights; raises as `request`.

    Goes through the inboxes until answers are heard; raises `Denied` when none of them is ours. A server that does not
    tell our rights is taken for one that has the API in its usual place.
    """
    while not prefix:
        try:
            return Api.told((await connection.request(_WHO_AM_I)).data)
        except Rejected:
            if not denials.is_deaf:
                return Api()
            if (
                not inboxes.next()
            ):  # nothing else that is asked on this client could be heard either
                raise
    return Api(prefix=prefix)
