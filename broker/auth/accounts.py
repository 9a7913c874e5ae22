"""The accounts of the broker, as values: who is in which, and what crosses between them. Decides; writes nothing.

| account | who is in it | what is there |
|---|---|---|
| LOGS | admins and logbroker itself; everybody as long as there are no credentials | stream and buckets |
| SHIP | hosts | what they need of LOGS |
| RECEIVE | receivers, who also speak with each other | what they need of LOGS |
| MONITOR | monitors | what they need of LOGS and SYS to read everything |
| SYS | nobody | the server's events and questions about it, of which LOGS has those that change nothing |

Hosts and receivers stand outside of LOGS because permissions look at no reply subject: an acknowledgement in LOGS
could be had sent to another host's subject, or to a key of a bucket, and would be stored there. What answers a service
import goes to subscribers in the account that asked, and nowhere else.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.auth.permissions import (
    API,
    HEARD,
    RECEIVERS,
    SERVER_QUESTIONS,
    permissions_of,
    rights_of_any,
)
from broker.auth.store import Credential, CredentialKind
from broker.report import SUBJECT as REPORT

Section = Mapping[str, Any]
"""Settings of nats-server by name; what is None is left out."""

LOGS, SHIP, RECEIVE, MONITOR, SYS = "LOGS", "SHIP", "RECEIVE", "MONITOR", "SYS"
_KINDS = {
    SHIP: CredentialKind.HOST,
    RECEIVE: CredentialKind.RECEIVER,
    MONITOR: CredentialKind.MONITOR,
}

CONSUMER_REQUESTS = "logship.consumer"
"""Where logbroker hears of the consumers that hosts and receivers want, which have no way to CONSUMER.CREATE itself."""


class _Crossing(NamedTuple):
    """What the account `into` has of the account `of`: `subject` there, `local` here, wildcards in both alike.

    `kind` is how nats-server calls it: a question (`service`, which may have several answers), or messages (`stream`).
    """

    of: str
    into: str
    subject: str
    local: str
    has_several: bool = False
    kind: str = "service"


def accounts_of(
    credentials: Sequence[Credential],
    own: str,
    limits: Mapping[str, Section] = MappingProxyType({}),
    anybody: str = "",
    *,
    streams: int,
) -> Section:
    """Return the accounts of a broker that lets in these credentials, and logbroker itself by the key `own`.

    Whoever comes without a key is the user of the key `anybody`, whose seed nobody has, or is refused where that is empty:
    the first credential changes users only. `limits` are by the name of the account; those of LOGS are JetStream's.
    """
    users: dict[CredentialKind, list[Section]] = {kind: [] for kind in CredentialKind}
    for one in credentials:
        users[one.kind].append(_user(one, streams))
    everybody = [{"nkey": anybody}] if anybody else []
    inside = [{"nkey": own}, *users[CredentialKind.ADMIN], *users[CredentialKind.SITE], *everybody]
    members = {SYS: [], LOGS: inside, **{name: users[kind] for name, kind in _KINDS.items()}}
    crossings = tuple(_crossings(streams))
    return {
        "system_account": SYS,
        "no_auth_user": anybody or None,
        "accounts": {
            name: _account(name, found, limits.get(name), crossings)
            for name, found in members.items()
        },
    }


def _account(
    name: str, users: Sequence[Section], limits: Section | None, crossings: Sequence[_Crossing]
) -> Section:
    imports = [
        {
            one.kind: {"account": one.of, "subject": one.subject},
            "to": one.local if one.local != one.subject else None,
        }
        for one in crossings
        if one.into == name
    ]
    has_streams = name == LOGS
    return {
        "jetstream": (limits or "enabled") if has_streams else None,
        # whoever has a credential names the API so, also at a broker that is open yet
        "mappings": {f"{API}.>": "$JS.API.>"} if has_streams else None,
        "limits": None if has_streams else limits,
        "exports": _exports([one for one in crossings if one.of == name]) or None,
        "imports": imports or None,
        "users": users or None,
    }


def _exports(crossings: Sequence[_Crossing]) -> list[Section]:
    found: dict[str, dict[str, Any]] = {}
    for one in crossings:
        # several answers are remembered for longer than any pull waits
        more = {"response_type": "stream", "threshold": "60s"} if one.has_several else {}
        export = found.setdefault(one.subject, {one.kind: one.subject, **more, "accounts": []})
        export["accounts"].append(one.into)
    return list(found.values())


def _user(credential: Credential, streams: int) -> Section:
    """Return the user of a credential; whoever has rights of its own is no other site."""
    rights = permissions_of(credential, streams)
    is_site = credential.kind is CredentialKind.SITE
    permissions = rights and {
        "publish": {"allow": rights.publish},
        "subscribe": {"allow": rights.subscribe},
        "allow_responses": True if rights.responds else None,
    }
    types = ["LEAFNODE"] if is_site else ["STANDARD"] if rights else None
    return {
        "nkey": credential.nkey,
        "allowed_connection_types": types,
        "permissions": permissions,
    }


def _crossings(streams: int) -> Iterator[_Crossing]:
    """Yield what crosses: all that some credential has the right to, and what admins ask of the server and of receivers."""
    for account, kind in _KINDS.items():
        rights = rights_of_any(kind, streams)
        yield from filter(None, (_asked(account, subject) for subject in rights.publish))
        yield from filter(None, (_heard(account, subject) for subject in rights.subscribe))
    yield from filter(None, (_asked(LOGS, subject) for subject in (RECEIVERS, *SERVER_QUESTIONS)))
    yield from filter(None, (_heard(LOGS, subject) for subject in HEARD))


def _asked(into: str, subject: str) -> _Crossing | None:
    """Return how what is published in an account gets to who listens; None for what stays in that account."""
    if subject.startswith(f"{API}."):
        return _called(into, subject.removeprefix(f"{API}."))
    if subject in SERVER_QUESTIONS:
        return _Crossing(SYS, into, subject, subject, has_several=True)
    if subject == REPORT:
        return _Crossing(LOGS, into, subject, subject, has_several=True)
    if subject == RECEIVERS and into != RECEIVE:
        return _Crossing(RECEIVE, into, subject, subject)
    stays = subject.startswith(("logship.", "$SYS."))
    return None if stays else _Crossing(LOGS, into, subject, subject)


def _called(into: str, call: str) -> _Crossing:
    # renamed, since the importing account answers to $JS.API itself: that it has no JetStream
    if (made := call.removeprefix("CONSUMER.CREATE.")) != call:
        return _Crossing(LOGS, into, f"{CONSUMER_REQUESTS}.{made}", f"{API}.{call}")
    is_batch = call.startswith("DIRECT.GET.") and call.count(".") == 2
    has_several = is_batch or call.startswith("CONSUMER.MSG.NEXT.")
    return _Crossing(LOGS, into, f"$JS.API.{call}", f"{API}.{call}", has_several)


def _heard(into: str, subject: str) -> _Crossing | None:
    """Return how what is heard in an account gets there; None for what is published there."""
    if subject.startswith(("_INBOX", "logship.")):
        return None
    return _Crossing(SYS if subject in HEARD else LOGS, into, subject, subject, kind="stream")
