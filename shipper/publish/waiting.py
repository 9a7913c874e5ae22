"""Waiting for the broker: logs the reason once, logs that it is resumed, and spaces out the attempts."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

from broker.client.connection import ConnectionLost, Denied, Rejected
from broker.wire.subjects import inbox_of

__all__ = ["RetryCause", "Waiting", "reason_of", "wrong_credential"]


def wrong_credential(
    host: str, named: str, denied: Denied, permissions: Mapping[str, Any] | None
) -> str:
    """Say that the credential is another host's, if that is why something was denied to `host`; else return nothing.

    `named` is the host that the file of the credential names, if any; `permissions` are what the server says of this user.
    """
    inboxes = (f"{inbox_of(host)}.", f"_INBOX_{host}.")
    if not (denied.subject.startswith(inboxes) or denied.subject.endswith(f".{host}")):
        return ""
    allowed = set(_hosts(permissions))
    owner = min(allowed, default=named)
    if host in allowed or owner in {"", host}:
        return ""
    return (
        f"the credential is for host {owner}, but --host is {host}: "
        f"use the credential of {host}, or --host {owner}"
    )


def _hosts(permissions: Mapping[str, Any] | None) -> Iterator[str]:
    """Return the hosts that lines may be published for, as `logs.p0.web01` and `logs.*.web01` allow it."""
    for pattern in ((permissions or {}).get("publish") or {}).get("allow") or ():
        first, *partition_and_host = pattern.split(".")
        host = partition_and_host[1:]
        if first == "logs" and host and not {"*", ">"}.intersection(host):
            yield ".".join(host)


_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_SHORT_PAUSE, _ELECTION = 0.5, 20.0  # seconds: no pause is longer while a leader may be elected
_FULL = {10077, 10023, 10002, 10047}
Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


class RetryCause(Enum):
    """Why something is tried again, for counting: few words that stay, where reasons are sentences."""

    LOST = "lost"
    FULL = "full"
    MISSING = "missing"
    REFUSED = "refused"


def reason_of(error: Rejected) -> str:
    """Return what a refusal means to the person who reads the log."""
    if error.error in _FULL:
        return f"the broker is full ({error}); goes on when it has room"
    if error.is_leaderless:
        return (
            "the stream or its buckets are not there, or have no leader yet, or the stream does not take this host's "
            "partition; run `logbroker apply`"
        )
    if error.is_write_under_way:
        return (
            "another write of this host's subject is under way time and again: another client may be naming it in "
            "Nats-Expected-Last-Subject-Sequence-Subject; find that client, and stop it"
        )
    return f"the broker refuses: {error}"


class Waiting:
    """What this agent waits for, if anything; `reason` is empty while all goes well.

    `since` is when that began, on the loop's clock; `retries` counts what was tried again, by cause.
    """

    def __init__(self, explain: Callable[[Rejected], str] = reason_of) -> None:
        """Wait for nothing; `explain` says what a refusal means to the person who reads the log."""
        self.reason = ""
        self.since: float | None = None
        self.retries: Counter[RetryCause] = Counter()
        self._pause = _FIRST_PAUSE
        self._explain = explain

    async def until_answered(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return what the broker answers, however long it takes: asks again where it did not answer, or refused."""
        while True:
            try:
                answer = await ask()
            except ConnectionLost as error:
                await self.pause(f"the broker did not answer: {error}")
            except Rejected as error:
                await self.refused(error)
            else:
                self.over()
                return answer

    async def refused(self, error: Rejected) -> None:
        """Say why the broker refused something, and wait, as `pause` does."""
        await self.pause(self._explain(error), _cause_of(error))

    async def pause(self, reason: str, cause: RetryCause = RetryCause.LOST) -> None:
        """Say `reason` unless it was the last thing said, and wait; longer each time, at most 5 s.

        That nobody listens is no news the first time: so it is for a moment when a broker reads its accounts again. Where
        a leader may be missing that others are about to elect, no pause is long at first.
        """
        now = asyncio.get_running_loop().time()
        if cause is not RetryCause.MISSING or self.since is not None:
            if reason != self.reason:
                logger.warning("waiting: %s", reason)
            self.reason = reason
        if self.since is None:
            self.since = now
        self.retries[cause] += 1
        is_short = cause in {RetryCause.LOST, RetryCause.MISSING} and now - self.since < _ELECTION
        pause = min(self._pause, _SHORT_PAUSE) if is_short else self._pause
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def over(self) -> None:
        """Log that the broker is not waited for any more, if it was."""
        if self.reason:
            logger.info("resumed")
        self.reason, self.since, self._pause = "", None, _FIRST_PAUSE


def _cause_of(error: Rejected) -> RetryCause:
    """Return what a refusal is counted as."""
    if error.error in _FULL:
        return RetryCause.FULL
    return RetryCause.MISSING if error.is_leaderless else RetryCause.REFUSED
