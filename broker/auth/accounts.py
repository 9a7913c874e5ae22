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
its kind can have a right, except subjects that stay inside (`_route_published`). LOGS imports the
questions that an admin asks RECEIVE and SYS.
"""

import re
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
    grant_rights,
    list_copy_requests,
    list_deliveries,
    list_rights_of_kind,
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
_BATCH_GET = re.compile(r"DIRECT\.GET\.[^.]*")  # without a subject: it may ask for many messages


class BuiltinKeys(NamedTuple):
    """Public keys of users without a credential: logbroker itself, and clients without a key.

    nats-server refuses clients without a key if `anonymous` is empty. Nobody has the seed of
    `anonymous`: the key only names the user.
    """

    logbroker: str
    anonymous: str = ""


class _Import(NamedTuple):
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
    stream_count: int,
    site: str = "",
) -> Section:
    """Return the accounts of a broker.

    `limits` are by the name of the account; those of LOGS are JetStream's. `stream_count`
    and `site` are as in `grant_rights`.
    """
    users: dict[CredentialKind, list[Section]] = {kind: [] for kind in CredentialKind}
    for one in credentials:
        users[one.kind].append(_build_user(one, stream_count, site))
    builtin = [{"nkey": key} for key in keys if key]
    members = {SYS: [], LOGS: [*builtin, *users[CredentialKind.ADMIN]]}
    members |= {name: users[kind] for name, kind in _KINDS.items()}
    sites = [make_token(one.name) for one in credentials if one.kind is CredentialKind.SITE]
    imports = [*_list_imports(stream_count)]
    if sites:
        members[SITES] = users[CredentialKind.SITE]
        if site:
            imports += _list_site_imports(sites, make_token(site), stream_names(stream_count))
    return {
        "system_account": SYS,
        "no_auth_user": keys.anonymous or None,
        "accounts": {
            name: _build_account(name, found, limits.get(name), imports)
            for name, found in members.items()
        },
    }


def _build_user(credential: Credential, stream_count: int, site: str) -> Section:
    """Return the user of a credential; a site connects as a leaf node, an admin in any way."""
    rights = grant_rights(credential, stream_count, site)
    user: Section = {"nkey": credential.nkey}
    if rights is None:
        return user
    is_site = credential.kind is CredentialKind.SITE
    return {
        **user,
        "allowed_connection_types": ["LEAFNODE"] if is_site else ["STANDARD"],
        "permissions": {
            "publish": {"allow": rights.publish},
            "subscribe": {"allow": rights.subscribe},
            "allow_responses": rights.responds or None,
        },
    }


def _build_account(
    name: str, users: Sequence[Section], limits: Section | None, imports: Sequence[_Import]
) -> Section:
    own_imports = [
        {one.kind: {"account": one.of, "subject": one.subject}, "to": one.alias or None}
        for one in imports
        if one.into == name
    ]
    has_streams = name == LOGS
    return {
        "jetstream": (limits or "enabled") if has_streams else None,
        # a program with a credential uses this prefix also at a broker that has no credentials yet
        "mappings": {f"{API}.>": "$JS.API.>"} if has_streams else None,
        "limits": None if has_streams else limits,
        "exports": _build_exports([one for one in imports if one.of == name]) or None,
        "imports": own_imports or None,
        "users": users or None,
    }


def _build_exports(imports: Sequence[_Import]) -> list[Section]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in imports:
        # the threshold limits how long several answers may take; no pull waits for so long
        several = {"response_type": "stream", "threshold": "60s"} if one.has_several_answers else {}
        new = {one.kind: one.subject, **several, "accounts": []}
        export = found.setdefault((one.kind, one.subject), new)
        export["accounts"].append(one.into)
    return list(found.values())


def _list_imports(stream_count: int) -> Iterator[_Import]:
    """Yield the imports for hosts, receivers, monitors, and for an admin's questions."""
    for account, kind in _KINDS.items():
        rights = list_rights_of_kind(kind, stream_count)
        yield from filter(None, (_route_published(account, one) for one in rights.publish))
        yield from filter(None, (_route_subscribed(account, one) for one in rights.subscribe))
    yield from filter(None, (_route_published(LOGS, one) for one in (RECEIVERS, *SERVER_QUESTIONS)))
    yield from filter(None, (_route_subscribed(LOGS, one) for one in SERVER_EVENTS))


def _list_site_imports(others: Sequence[str], site: str, names: Sequence[str]) -> Iterator[_Import]:
    """Yield the imports between the streams of our site `site` and other sites.

    Flow control goes into LOGS as a stream and out of LOGS as a service, since nats-server
    refuses the same kind in both directions as a cycle.
    """
    for kind in ("service", "stream"):
        yield _Import(SITES, LOGS, FLOW_CONTROL, kind=kind)
    # a credential with our own name is for no other site
    for name in (site, *(other for other in others if other != site)):
        of, into = (LOGS, SITES) if name == site else (SITES, LOGS)
        for subject in list_copy_requests(name, names):
            yield _Import(of, into, subject)
        for subject in list_deliveries(name):
            yield _Import(of, into, subject, kind="stream")


def _route_published(into: str, subject: str) -> _Import | None:
    """Return the import by which clients of the account `into` publish a subject.

    None if the subject stays inside the account.
    """
    if subject.startswith(f"{API}."):
        return _route_call(into, subject.removeprefix(f"{API}."))
    if subject in SERVER_QUESTIONS:
        return _Import(SYS, into, subject, has_several_answers=True)
    if subject == REPORT_SUBJECT:
        return _Import(LOGS, into, subject, has_several_answers=True)
    if subject == RECEIVERS and into != RECEIVE:
        return _Import(RECEIVE, into, subject)
    stays = subject.startswith(("logship.", "$SYS."))
    return None if stays else _Import(LOGS, into, subject)


def _route_call(into: str, call: str) -> _Import:
    if (made := call.removeprefix("CONSUMER.CREATE.")) != call:
        return _Import(LOGS, into, f"{CONSUMER_REQUESTS}.{made}", f"{API}.{call}")
    has_several = bool(_BATCH_GET.fullmatch(call)) or call.startswith("CONSUMER.MSG.NEXT.")
    return _Import(LOGS, into, f"$JS.API.{call}", f"{API}.{call}", has_several)


def _route_subscribed(into: str, subject: str) -> _Import | None:
    """Return how a subscribed subject enters the account `into`; None if it stays inside."""
    if subject.startswith("logship."):
        return None
    of = SYS if subject in SERVER_EVENTS else LOGS
    return _Import(of, into, subject, kind="stream")
