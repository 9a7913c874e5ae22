"""Builds the accounts of nats-server's configuration from the credentials and their rights.

| account | its clients | it has |
|---|---|---|
| LOGS | admins, logbroker, and all clients while there are no credentials | streams, buckets |
| SHIP | hosts | imports of LOGS |
| RECEIVE | receivers, which also ask each other | imports of LOGS |
| MONITOR | monitors | imports of LOGS, RECEIVE and SYS |
| SITES | other sites that connect to this one | copies of streams, in both directions |
| SYS | none | the events of nats-server, and its answers |

The imports follow from `permissions.py`: an account imports every subject to which a credential of
its kind can have a right.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.auth.credentials import Credential, CredentialKind
from broker.auth.permissions import (
    API,
    CONSUMER_REQUESTS,
    FLOW_CONTROL,
    RECEIVERS,
    SERVER_EVENTS,
    SERVER_QUESTIONS,
    grant_any_name,
    grant_rights,
    list_copy_requests,
    list_deliveries,
)
from broker.report import REPORT_SUBJECT
from nats_logship.wire.streams import stream_names
from nats_logship.wire.subjects import make_token

Section = Mapping[str, Any]
"""Settings of nats-server by name; those that are None are left out."""

LOGS, SHIP, RECEIVE, MONITOR, SYS = "LOGS", "SHIP", "RECEIVE", "MONITOR", "SYS"
SITES = "SITES"
_KINDS = {
    SHIP: CredentialKind.HOST,
    RECEIVE: CredentialKind.RECEIVER,
    MONITOR: CredentialKind.MONITOR,
}


class BuiltinKeys(NamedTuple):
    """Public keys of users without a credential: logbroker itself, and clients without a key.

    nats-server refuses clients without a key if `anonymous` is empty. Nobody has the seed of
    `anonymous`: the key only names the user.
    """

    logbroker: str
    anonymous: str = ""


class _Crossing(NamedTuple):
    """A subject that the account `into` imports from the account `of`, as `alias` if given.

    `kind` is nats-server's: a `service` answers requests, a `stream` delivers messages.
    """

    of: str
    into: str
    subject: str
    alias: str = ""
    has_several_answers: bool = False
    kind: str = "service"


def build_accounts(
    credentials: Sequence[Credential],
    keys: BuiltinKeys,
    limits: Mapping[str, Section] = MappingProxyType({}),
    *,
    streams: int,
    site: str = "",
) -> Section:
    """Return the accounts of a broker.

    `limits` are by the name of the account; those of LOGS are JetStream's. `streams` and `site`
    are as in `grant_rights`.
    """
    users: dict[CredentialKind, list[Section]] = {kind: [] for kind in CredentialKind}
    for one in credentials:
        users[one.kind].append(_build_user(one, streams, site))
    builtin = [{"nkey": key} for key in keys if key]
    members = {SYS: [], LOGS: [*builtin, *users[CredentialKind.ADMIN]]}
    members |= {name: users[kind] for name, kind in _KINDS.items()}
    sites = [make_token(one.name) for one in credentials if one.kind is CredentialKind.SITE]
    crossings = [*_list_crossings(streams)]
    if sites:
        members[SITES] = users[CredentialKind.SITE]
        if site:
            crossings += _cross_sites(sites, make_token(site), stream_names(streams))
    return {
        "system_account": SYS,
        "no_auth_user": keys.anonymous or None,
        "accounts": {
            name: _build_account(name, found, limits.get(name), crossings)
            for name, found in members.items()
        },
    }


def _build_user(credential: Credential, streams: int, site: str) -> Section:
    """Return the user of a credential; only a site may connect as a leaf node."""
    rights = grant_rights(credential, streams, site)
    is_site = credential.kind is CredentialKind.SITE
    return {
        "nkey": credential.nkey,
        "allowed_connection_types": ["LEAFNODE"] if is_site else ["STANDARD"] if rights else None,
        "permissions": rights
        and {
            "publish": {"allow": rights.publish},
            "subscribe": {"allow": rights.subscribe},
            "allow_responses": rights.responds or None,
        },
    }


def _build_account(
    name: str, users: Sequence[Section], limits: Section | None, crossings: Sequence[_Crossing]
) -> Section:
    imports = [
        {one.kind: {"account": one.of, "subject": one.subject}, "to": one.alias or None}
        for one in crossings
        if one.into == name
    ]
    has_streams = name == LOGS
    return {
        "jetstream": (limits or "enabled") if has_streams else None,
        # a program with a credential uses this prefix also at a broker that has no credentials yet
        "mappings": {f"{API}.>": "$JS.API.>"} if has_streams else None,
        "limits": None if has_streams else limits,
        "exports": _build_exports([one for one in crossings if one.of == name]) or None,
        "imports": imports or None,
        "users": users or None,
    }


def _build_exports(crossings: Sequence[_Crossing]) -> list[Section]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in crossings:
        # the threshold limits how long several answers may take; no pull waits for so long
        several = {"response_type": "stream", "threshold": "60s"} if one.has_several_answers else {}
        new = {one.kind: one.subject, **several, "accounts": []}
        export = found.setdefault((one.kind, one.subject), new)
        export["accounts"].append(one.into)
    return list(found.values())


def _list_crossings(streams: int) -> Iterator[_Crossing]:
    """Yield the crossings for hosts, receivers, monitors, and for an admin's questions."""
    for account, kind in _KINDS.items():
        rights = grant_any_name(kind, streams)
        yield from filter(None, (_route_published(account, one) for one in rights.publish))
        yield from filter(None, (_route_subscribed(account, one) for one in rights.subscribe))
    yield from filter(None, (_route_published(LOGS, one) for one in (RECEIVERS, *SERVER_QUESTIONS)))
    yield from filter(None, (_route_subscribed(LOGS, one) for one in SERVER_EVENTS))


def _cross_sites(others: Sequence[str], site: str, lines: Sequence[str]) -> Iterator[_Crossing]:
    """Yield the crossings between the streams of our site `site` and other sites.

    Flow control crosses into LOGS as a stream and out of LOGS as a service, since nats-server
    refuses the same kind in both directions as a cycle.
    """
    for kind in ("service", "stream"):
        yield _Crossing(SITES, LOGS, FLOW_CONTROL, kind=kind)
    # a credential with our own name is for no other site
    for name in (site, *(other for other in others if other != site)):
        of, into = (LOGS, SITES) if name == site else (SITES, LOGS)
        for subject in list_copy_requests(name, lines):
            yield _Crossing(of, into, subject)
        for subject in list_deliveries(name):
            yield _Crossing(of, into, subject, kind="stream")


def _route_published(into: str, subject: str) -> _Crossing | None:
    """Return how a published subject leaves the account `into`; None if it stays inside."""
    if subject.startswith(f"{API}."):
        return _route_call(into, subject.removeprefix(f"{API}."))
    if subject in SERVER_QUESTIONS:
        return _Crossing(SYS, into, subject, has_several_answers=True)
    if subject == REPORT_SUBJECT:
        return _Crossing(LOGS, into, subject, has_several_answers=True)
    if subject == RECEIVERS and into != RECEIVE:
        return _Crossing(RECEIVE, into, subject)
    stays = subject.startswith(("logship.", "$SYS."))
    return None if stays else _Crossing(LOGS, into, subject)


def _route_call(into: str, call: str) -> _Crossing:
    if (made := call.removeprefix("CONSUMER.CREATE.")) != call:
        return _Crossing(LOGS, into, f"{CONSUMER_REQUESTS}.{made}", f"{API}.{call}")
    is_batch = call.startswith("DIRECT.GET.") and call.count(".") == 2
    has_several = is_batch or call.startswith("CONSUMER.MSG.NEXT.")
    return _Crossing(LOGS, into, f"$JS.API.{call}", f"{API}.{call}", has_several)


def _route_subscribed(into: str, subject: str) -> _Crossing | None:
    """Return how a subscribed subject enters the account `into`; None if it stays inside."""
    if subject.startswith("logship."):
        return None
    of = SYS if subject in SERVER_EVENTS else LOGS
    return _Crossing(of, into, subject, kind="stream")
