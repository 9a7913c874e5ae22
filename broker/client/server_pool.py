"""The servers of one broker: tried in turn, each time with the credential files as they are then, and left again.

A server that was cut off from the others of its cluster lets clients in and takes what they send; nothing comes of it.
Why no server could be used is said in words for the person who can mend it, never with a secret.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import nats.errors

from broker.app.exits import OperatorError
from broker.client.access import Access
from broker.client.answer import ConnectionLost, Rejected
from broker.client.client import CONNECT_TIMEOUT, BrokerClient, HungUp, NoTls
from broker.client.credentials import read_credentials
from broker.client.rights import Inboxes
from broker.client.servers import public

__all__ = ["BrokerAway", "ServerPool", "Trust", "attempts"]

_HASTE = 1  # seconds for each step of a connect while there are others to try
_MOST_SILENCE = 4.5  # seconds in all for which answers were waited for in vain; until then it may not know who died
_MOST_REFUSALS = (
    12.0  # seconds for which it has said that nobody leads; elections take four to nine
)
_REFUSALS = ("authorization", "authentication")


class BrokerAway(OperatorError):
    """No broker lets us in at the addresses given."""


class ServerPool:
    """The servers of one broker, and who asks to be let in there."""

    def __init__(self, servers: Sequence[str], name: str, inboxes: Inboxes, access: Access) -> None:
        """Remember them; no file is read before the first `connect`."""
        self._servers = list(servers)
        self._name = name
        self._inboxes = inboxes
        self._access = access
        self.api_prefix = access.api_prefix
        """What the subjects of the JetStream API begin with, as the settings or the credential file say; else empty."""
        self._last = ""

    def __str__(self) -> str:
        """Name the addresses, without the passwords that may stand in them."""
        return ", ".join(map(public, self._servers))

    @property
    def is_one_of_several(self) -> bool:
        """Whether there is another server to go to."""
        return len(set(self._servers)) > 1

    async def connect(self, on_error: Callable[[Exception], Awaitable[None]]) -> BrokerClient:
        """Return a client of the first server that lets us in, the one that did before being the last to be asked.

        `on_error` is told what goes wrong later. Raises `BrokerAway` with what kept us out of each server, or
        ConfigurationError for files that cannot be read.
        """
        credentials = await asyncio.to_thread(read_credentials, self._access)
        self._inboxes.know(credentials)
        self.api_prefix = credentials.api_prefix
        failures: dict[str, _Failure] = {}
        slow: list[str] = []
        order = random.sample(self._servers, len(self._servers))
        for server, patience in attempts(order, self._last, slow):
            client = BrokerClient(server, self._access, credentials, patience)
            try:
                await client.open(on_error, name=self._name, inbox_prefix=self._inboxes.prefix)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                failures[server] = _failure_of(error, server, self._access)
                if isinstance(error, TimeoutError | nats.errors.TimeoutError):
                    slow.append(server)
                continue
            self._last = server
            return client
        raise BrokerAway(_summary([failures[server] for server in dict.fromkeys(self._servers)]))


class Trust:
    """What has come of the questions since the last one that was answered by somebody who leads."""

    def __init__(self) -> None:
        """Begin without a doubt."""
        self._silence = 0.0
        self._refused: float | None = None

    def is_lost(self, error: ConnectionLost | Rejected | None, seconds: float, now: float) -> bool:
        """Take note of how a question ended that was asked `seconds` before `now`; True when it is time to leave."""
        match error:
            case ConnectionLost():
                self._silence += seconds
            case Rejected() if error.is_leaderless:
                self._refused = now if self._refused is None else self._refused
            case Rejected() if error.is_wrong_sequence or error.is_write_under_way:
                pass  # says so as well that leads nobody any more, and has our own write in hand
            case _:
                self._silence, self._refused = 0.0, None
        waited = 0.0 if self._refused is None else now - self._refused
        return self._silence >= _MOST_SILENCE or waited >= _MOST_REFUSALS


def attempts(shuffled: Sequence[str], last: str, slow: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Give servers in the order to try them, with the seconds for each step: the one that we had `last` comes last.

    One that stands still takes a connection and says nothing. So where there are several each gets little time at first;
    those that `slow` has in the end, put there by the caller meanwhile, get theirs then.
    """
    if len(set(shuffled)) == 1:
        yield shuffled[0], CONNECT_TIMEOUT
        return
    for server in sorted(shuffled, key=lambda server: server == last):
        yield server, _HASTE
    for server in tuple(slow):
        yield server, CONNECT_TIMEOUT


@dataclass(frozen=True, slots=True)
class _Failure:
    """What became of an attempt at one server; `answered` says whether something is there that speaks to us."""

    server: str
    answered: bool
    reason: str


def _failure_of(error: BaseException, server: str, access: Access) -> _Failure:
    """Return what an error of a connect means."""
    text = str(error).removeprefix("nats: ").strip("'")
    match error:
        case NoTls():
            answer = "offers no TLS, and this end talks in the clear to nobody"
        case HungUp():
            answer = (
                "hangs up after the TLS handshake; it may want another certificate (--tls-cert)"
            )
        case ssl.SSLCertVerificationError():
            answer = f"shows a certificate that does not hold: {error.verify_message}; check --tls-ca and --server"
        case ssl.SSLError():
            reason = (error.reason or "TLS failed").replace("_", " ").lower()
            answer = f"ends the TLS handshake: {reason}; check the --tls options"
        case _ if "maximum" in text.lower():
            answer = (
                f"connection limit reached: {text}; see there who connects so often, or raise host_connections, "
                "receiver_connections"
            )
        case _ if any(word in text.lower() for word in _REFUSALS):
            answer = f"refuses {_who(server, access)}: {text}"
        case _:
            return _Failure(public(server), False, _silence(error, text))
    return _Failure(public(server), True, answer)


def _silence(error: BaseException, text: str) -> str:
    if isinstance(error, TimeoutError) or "empty response" in text:
        return f"no word within {CONNECT_TIMEOUT} s (one that begins with TLS takes --tls-first)"
    return text or type(error).__name__


def _summary(failures: Sequence[_Failure]) -> str:
    """Say in one line why no server could be used: what those that answered said, else that none is there."""
    answered = [f"the broker at {f.server} {f.reason}" for f in failures if f.answered]
    if answered:
        return "; ".join(answered)
    servers = ", ".join(f.server for f in failures)
    reasons = "; ".join(dict.fromkeys(f.reason for f in failures))
    return f"no broker at {servers}: {reasons}; start one with `logbroker run`, or check --server"


def _who(server: str, access: Access) -> str:
    parts = urlsplit(server if "://" in server else f"nats://{server}")
    if access.creds or access.nkey or access.nkey_seed or access.user or parts.username is None:
        return str(access)
    return "the token of its address" if parts.password is None else f"user {parts.username!r}"
