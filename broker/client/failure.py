"""Why a connection could not be made, in words for the person who can mend it. Never repeats a secret."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from broker.client.access import Access
from broker.client.client import HungUp, NoTls
from broker.client.servers import public
from broker.client.trust import CONNECT_TIMEOUT

__all__ = ["Failure", "failure_of", "summary"]

_REFUSALS = ("authorization", "authentication")


@dataclass(frozen=True, slots=True)
class Failure:
    """What became of an attempt at one server; `answered` says whether something is there that speaks to us."""

    server: str
    answered: bool
    reason: str


def failure_of(error: BaseException, server: str, access: Access) -> Failure:
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
            answer = f"refuses {_visitor(server, access)}: {text}"
        case _:
            return Failure(public(server), False, _silence(error, text))
    return Failure(public(server), True, answer)


def _silence(error: BaseException, text: str) -> str:
    if isinstance(error, TimeoutError) or "empty response" in text:
        return f"no word within {CONNECT_TIMEOUT} s (one that begins with TLS takes --tls-first)"
    return text or type(error).__name__


def summary(failures: Sequence[Failure]) -> str:
    """Say in one line why no server could be used: what those that answered said, else that none is there."""
    answered = [f"the broker at {f.server} {f.reason}" for f in failures if f.answered]
    if answered:
        return "; ".join(answered)
    servers = ", ".join(f.server for f in failures)
    reasons = "; ".join(dict.fromkeys(f.reason for f in failures))
    return f"no broker at {servers}: {reasons}; start one with `logbroker run`, or check --server"


def _visitor(server: str, access: Access) -> str:
    parts = urlsplit(server if "://" in server else f"nats://{server}")
    if access.creds or access.nkey or access.nkey_seed or access.user or parts.username is None:
        return str(access)
    return "the token of its address" if parts.password is None else f"user {parts.username!r}"
