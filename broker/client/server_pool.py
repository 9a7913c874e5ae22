"""The servers of one broker: tried in turn, each time with the credential files as they are then, and left again.

A server that was cut off from the others of its cluster lets clients in and takes what they send; nothing comes of it.
Why no server could be used is said in words for the person who can mend it, never with a secret.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import nats.errors

from broker.app.exits import OperatorError
from broker.client.access import Access, public
from broker.client.answer import ConnectionLost, Rejected
from broker.client.client import CONNECT_TIMEOUT, BrokerClient, HungUp, NoTls
from broker.client.credentials import read_credentials

__all__ = ["ANYBODY", "BrokerAway", "ServerPool", "Trust"]

ANYBODY = "_INBOX"
"""What the inboxes of every client begin with that has none of its own."""

_API = "$JS.API"  # the prefix for who is in the account with the stream
_MOST_SILENCE = 4.5  # seconds in all for which answers were waited for in vain; until then it may not know who died
_MOST_REFUSALS = (
    12.0  # seconds for which it has said that nobody leads; elections take four to nine
)


class BrokerAway(OperatorError):
    """No broker lets us in at the addresses given."""


class ServerPool:
    """The servers of one broker, and who asks to be let in there."""

    def __init__(self, servers: Sequence[str], name: str, access: Access) -> None:
        """Remember them; no file is read before the first `connect`."""
        self._servers = list(dict.fromkeys(servers))
        self._name = name
        self._access = access
        self._last = ""
        self.inbox_prefix = access.inbox_prefix or ANYBODY
        """What the subjects begin with on which answers are heard, as the settings or the credential file say."""
        self.api_prefix = access.api_prefix or _API
        """What the subjects of the JetStream API begin with, likewise."""

    def __str__(self) -> str:
        """Name the addresses, without the passwords that may stand in them."""
        return ", ".join(map(public, self._servers))

    @property
    def is_one_of_several(self) -> bool:
        """Whether there is another server to go to."""
        return len(self._servers) > 1

    async def connect(self, on_error: Callable[[Exception], Awaitable[None]]) -> BrokerClient:
        """Return a client of the first server that lets us in, the one that did before being the last to be asked.

        `on_error` is told what goes wrong later. Raises `BrokerAway` with what kept us out of each server, or
        ConfigurationError for files that cannot be read.
        """
        credentials = await asyncio.to_thread(read_credentials, self._access)
        self.inbox_prefix = credentials.inbox_prefix or ANYBODY
        self.api_prefix = credentials.api_prefix or _API
        refusals: list[str] = []
        silences: dict[str, str] = {}
        order = random.sample(self._servers, len(self._servers))
        for server in sorted(order, key=lambda server: server == self._last):
            client = BrokerClient(server, self._access, credentials)
            try:
                await client.open(on_error, name=self._name, inbox_prefix=self.inbox_prefix)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                if refusal := _refusal(error, server, self._access):
                    refusals.append(f"the broker at {public(server)} {refusal}")
                silences[public(server)] = _silence(error)
            else:
                self._last = server
                return client
        if refusals:
            raise BrokerAway("; ".join(refusals))
        reasons = "; ".join(dict.fromkeys(silences.values()))
        raise BrokerAway(
            f"no broker at {', '.join(silences)}: {reasons}; start one with `logbroker run`, or check --server"
        )


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


def _refusal(error: BaseException, server: str, access: Access) -> str:
    """Return what a server said that answered, for the person who can mend it; empty where none answered."""
    text = _text(error)
    match error:
        case NoTls():
            return "offers no TLS, and this end talks in the clear to nobody"
        case HungUp():
            return "hangs up after the TLS handshake; it may want another certificate (--tls-cert)"
        case ssl.SSLCertVerificationError():
            return f"shows a certificate that does not hold: {error.verify_message}; check --tls-ca and --server"
        case ssl.SSLError():
            reason = (error.reason or "TLS failed").replace("_", " ").lower()
            return f"ends the TLS handshake: {reason}; check the --tls options"
        case _:
            pass
    if "maximum" in text.lower():
        return (
            f"connection limit reached: {text}; see there who connects so often, or raise host_connections, "
            "receiver_connections"
        )
    is_refused = any(word in text.lower() for word in ("authorization", "authentication"))
    return f"refuses {_who(server, access)}: {text}" if is_refused else ""


def _silence(error: BaseException) -> str:
    text = _text(error)
    if isinstance(error, TimeoutError) or "empty response" in text:
        return f"no word within {CONNECT_TIMEOUT} s (one that begins with TLS takes --tls-first)"
    return text or type(error).__name__


def _text(error: BaseException) -> str:
    return str(error).removeprefix("nats: ").strip("'")


def _who(server: str, access: Access) -> str:
    parts = urlsplit(server if "://" in server else f"nats://{server}")
    if access.creds or access.nkey or access.nkey_seed or access.user or parts.username is None:
        return str(access)
    return "the token of its address" if parts.password is None else f"user {parts.username!r}"
