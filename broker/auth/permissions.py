"""What an identity may publish and hear, and the accounts of the broker, as values: the least that each program needs. Decides only.

This is the only table of rights: the account of a kind has of the others what any credential of that kind may do.

| account | who is in it | what is there |
|---|---|---|
| LOGS | admins and logbroker itself; everybody as long as there are no credentials | stream and buckets |
| SHIP | hosts | what they need of LOGS |
| RECEIVE | receivers, who also speak with each other | what they need of LOGS |
| MONITOR | monitors | what they need of LOGS and SYS to read everything |
| SITES | other sites that connect to this one | copies of streams of LOGS, in both directions |
| SYS | nobody | the server's events and questions about it, of which LOGS has those that change nothing |

Hosts and receivers stand outside of LOGS because permissions look at no reply subject: an acknowledgement in LOGS
could be had sent to another host's subject, or to a key of a bucket, and would be stored there. What answers a service
import goes to subscribers in the account that asked, and nowhere else.

Requests to JetStream carry `API`, the prefix under which the accounts of hosts and receivers import it; there is no
right to the API of their own account, which has no JetStream and would answer too. A monitor reads everything and changes
nothing; it reads streams through consumers that only it can make: their names are listed in its rights, since a right to
make, pull from or remove any consumer would be one to disturb receivers.

A site is a leaf node, which may acknowledge for anybody in its account, and hears where others wait
for answers. So SITES has nothing but what copies need: a site asks `SITE.<ours>.API`, where
logbroker listens and passes on what a copy needs (`broker/server/requests.py`). What is copied
travels below the name of the site that it comes from, so no site delivers lines, or answers, for
another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.auth.credentials import Credential, CredentialKind
from broker.report import REPORT_SUBJECT
from broker.topology import site_api, site_prefix
from nats_logship.wire.pause import PAUSE_KEY, PAUSE_SUBJECT
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    STREAMS_KEY,
    StreamLayout,
    offset_key,
    positions_key,
    stream_names,
)
from nats_logship.wire.subjects import (
    consumer_name,
    count_name,
    host_filter,
    inbox_of,
    own_token,
    partition_filter,
    reader_names,
    registry_consumer,
    wake_names,
)

API = "JS.LOGS.API"
"""The prefix of the JetStream API in the accounts that import it."""

_OFFSETS = f"KV_{OFFSETS_BUCKET}"
_CONFIG = f"DIRECT.GET.KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}"
_LAYOUT = (f"{_CONFIG}.{PARTITIONS_KEY}", f"{_CONFIG}.{STREAMS_KEY}")
_PAUSE = f"{_CONFIG}.{PAUSE_KEY}"
_ANY = "*"
# lines of a host may follow any partition's
_ALL_OFFSETS = f"DIRECT.GET.{_OFFSETS}.$KV.{OFFSETS_BUCKET}.*"
_ANSWERS = "$JSC.R.*"  # where nats-server hears the answer to its request for a copy, and
_ANSWERED = "_R_.>"  # from another account
_FLOW = "$JS.FC.>"  # that a copy has come so far
_WHOAMI = "$SYS.REQ.USER.INFO"  # which every account answers by itself

RECEIVERS = "logship.receiver.>"
"""The addresses at which receivers answer who asks for their report."""

_MONITOR_READS = (
    *("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.*.>"),
    *("CONSUMER.NAMES.*", "CONSUMER.LIST.*", "CONSUMER.INFO.*.*"),
)
"""Calls of the JetStream API that change nothing."""

_RECEIVER_CALLS = (
    *("STREAM.MSG.GET.{}", "CONSUMER.INFO.{}.*", "CONSUMER.NAMES.{}", "CONSUMER.RESET.{}.*"),
    *("CONSUMER.CREATE.{}", "CONSUMER.CREATE.{}.>", "CONSUMER.DELETE.{}.*"),
    *("CONSUMER.MSG.NEXT.{}.*", "DIRECT.GET.{}"),
)
"""Calls about a stream by which a receiver of all partitions reads it by any means."""

SERVER_EVENTS = ("$SYS.ACCOUNT.>", "$SYS.SERVER.>")
"""Events of the server, which admins and monitors may hear."""

SERVER_QUESTIONS = tuple(
    f"$SYS.REQ.SERVER.PING.{question}"
    for question in (
        *("VARZ", "CONNZ", "JSZ", "HEALTHZ", "ACCOUNTZ"),
        *("STATSZ", "SUBSZ", "ROUTEZ", "LEAFZ", "IDZ"),
    )
)
"""Questions about the server that change nothing about it, which admins and monitors may ask."""


Section = Mapping[str, Any]
"""Settings of nats-server by name; what is None is left out."""

LOGS, SHIP, RECEIVE, MONITOR, SYS = "LOGS", "SHIP", "RECEIVE", "MONITOR", "SYS"
SITES = "SITES"
_KINDS = {
    SHIP: CredentialKind.HOST,
    RECEIVE: CredentialKind.RECEIVER,
    MONITOR: CredentialKind.MONITOR,
}

CONSUMER_REQUESTS = "logship.consumer"
"""Where logbroker hears of the consumers that hosts and receivers want, which have no way to CONSUMER.CREATE itself."""


@dataclass(frozen=True, slots=True)
class SubjectRights:
    """Subjects that may be published to and subscribed; with `responds` also whatever a message heard asks to reply to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    responds: bool = False


def grant_rights(credential: Credential, streams: int, site: str = "") -> SubjectRights | None:
    """Return the rights of a credential; None for an admin, who has all that there are.

    The broker has so many streams of lines; `site` is its own site, empty where it has none.
    """
    match credential.kind:
        case CredentialKind.HOST:
            name = credential.name
            consumer, key = registry_consumer(name), positions_key(name)
            return _of_host(host_filter(name), consumer, key, inbox_of(name))
        case CredentialKind.RECEIVER:
            layout = StreamLayout(0, streams)
            return _of_receiver(own_token(credential.name), credential.partitions, layout)
        case CredentialKind.ADMIN:
            return None
        case CredentialKind.MONITOR:
            readers = reader_names(own_token(credential.name))
            return _of_monitor(readers, inbox_of(credential.name))
        case CredentialKind.SITE:
            return _of_site(own_token(credential.name), own_token(site), stream_names(streams))


def rights_of_any(kind: CredentialKind, streams: int) -> SubjectRights:
    """Return what hosts, receivers or monitors may do, whatever their names are."""
    match kind:
        case CredentialKind.HOST:
            return _of_host("logs.>", _ANY, _ANY, "_INBOX")
        case CredentialKind.RECEIVER:
            return _of_receiver(_ANY, (), StreamLayout(0, streams))
        case _:
            return _of_monitor((_ANY,), "_INBOX")


def copied_streams(lines: Sequence[str]) -> tuple[str, ...]:
    """Return what another site may copy, given the names of the streams of lines."""
    return (*lines, f"KV_{CONFIG_BUCKET}", f"KV_{POSITIONS_BUCKET}")


def _of_site(other: str, own: str, lines: Sequence[str]) -> SubjectRights:
    """Return the rights of the site `other` at the broker of the site `own`.

    It asks for copies of ours, and delivers its own; it hears ours, and that we ask for its own.
    """
    return SubjectRights(
        (*_copy_requests(own, lines), *_deliveries(other), _FLOW, _ANSWERED),
        (*_copy_requests(other, lines), *_deliveries(own), _FLOW, _ANSWERS),
    )


def _copy_requests(site: str, lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{site_api(site)}.CONSUMER.CREATE.{name}" for name in copied_streams(lines))


def _deliveries(site: str) -> tuple[str, ...]:
    """Return where copies of a site are delivered: for sources, and for mirrors."""
    return tuple(f"{site_prefix(site)}.{kind}.*" for kind in ("S", "M"))


def _of_host(own: str, consumer: str, key: str, inbox: str) -> SubjectRights:
    """Return the rights of a host, in whichever stream its subjects are: the partition of a host may change."""
    positions = f"$KV.{POSITIONS_BUCKET}.{key}"
    calls = _api(
        f"DIRECT.GET.*.{own}",
        *_LAYOUT,
        _PAUSE,
        f"DIRECT.GET.KV_{POSITIONS_BUCKET}.{positions}",
        f"CONSUMER.CREATE.*.{consumer}.{own}",
        f"CONSUMER.DELETE.*.{consumer}",
        f"CONSUMER.MSG.NEXT.*.{consumer}",
    )
    return SubjectRights((own, positions, *calls, _WHOAMI), (f"{inbox}.>", PAUSE_SUBJECT))


def _of_receiver(own: str, partitions: Sequence[int], layout: StreamLayout) -> SubjectRights:
    """Return the rights of a receiver: it answers at its own addresses only, and asks others at theirs."""
    leave, names = f"logship.leave.{own}.*", layout.names
    lines = [right for partition in partitions for right in _of_partition(partition, layout)]
    return SubjectRights(
        (
            *_api(*(f"STREAM.INFO.{name}" for name in names), *_LAYOUT, _ALL_OFFSETS),
            *(lines or _of_all_partitions(names)),
            *(RECEIVERS, leave, _WHOAMI),
        ),
        (f"_INBOX_{own}.>", leave, f"logship.receiver.{own}.*"),
        responds=True,
    )


def _of_monitor(readers: Sequence[str], inbox: str) -> SubjectRights:
    consumers = [
        f"CONSUMER.{call}.*.{reader}{rest}"
        for reader in readers
        for call, rest in (("CREATE", ""), ("CREATE", ".>"), ("MSG.NEXT", ""), ("DELETE", ""))
    ]
    calls = _api(*_MONITOR_READS, "DIRECT.GET.*", *consumers)
    return SubjectRights(
        (*calls, REPORT_SUBJECT, RECEIVERS, *SERVER_QUESTIONS, _WHOAMI),
        (f"{inbox}.>", "$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", *SERVER_EVENTS),
    )


def _of_partition(partition: int, layout: StreamLayout) -> tuple[str, ...]:
    """Return what a receiver may do with a partition; it counts messages of others, unread."""
    stream = layout.stream_of(partition)
    durable, lines = consumer_name(partition), partition_filter(partition)
    count = count_name(partition)
    wakes = [
        call
        for wake in wake_names(partition)
        for call in (
            f"CONSUMER.CREATE.{stream}.{wake}.{lines}",
            f"CONSUMER.DELETE.{stream}.{wake}",
            f"CONSUMER.MSG.NEXT.{stream}.{wake}",
        )
    ]
    return (
        *_api(
            f"CONSUMER.CREATE.{stream}.{durable}.{lines}",
            *(f"CONSUMER.{call}.{stream}.{durable}" for call in ("INFO", "RESET", "MSG.NEXT")),
            *wakes,
            *(f"CONSUMER.CREATE.{name}.{count}.logs.>" for name in layout.names),
            *(f"CONSUMER.DELETE.{name}.{count}" for name in layout.names),
        ),
        f"$JS.ACK.{stream}.{durable}.>",
        f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}",
    )


def _of_all_partitions(streams: Sequence[str]) -> tuple[str, ...]:
    """Return what reaches every partition, those to come included, and reads the whole streams by any means."""
    return (
        *_api(*(call.format(name) for name in streams for call in _RECEIVER_CALLS)),
        *_api(f"STREAM.MSG.GET.{_OFFSETS}"),
        *(f"$JS.ACK.{name}.>" for name in streams),
        f"$KV.{OFFSETS_BUCKET}.*",
    )


def _api(*calls: str) -> tuple[str, ...]:
    return tuple(f"{API}.{call}" for call in calls)


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


def build_accounts(
    credentials: Sequence[Credential],
    own: str,
    limits: Mapping[str, Section] = MappingProxyType({}),
    anybody: str = "",
    *,
    streams: int,
    site: str = "",
) -> Section:
    """Return the accounts of a broker of `site` for these credentials, and logbroker's key `own`.

    Whoever comes without a key is the user of the key `anybody`, whose seed nobody has, or is refused where that is empty:
    the first credential changes users only. `limits` are by the name of the account; those of LOGS are JetStream's.
    """
    users: dict[CredentialKind, list[Section]] = {kind: [] for kind in CredentialKind}
    for one in credentials:
        users[one.kind].append(_user(one, streams, site))
    everybody = [{"nkey": anybody}] if anybody else []
    inside = [{"nkey": own}, *users[CredentialKind.ADMIN], *everybody]
    members = {SYS: [], LOGS: inside, **{name: users[kind] for name, kind in _KINDS.items()}}
    sites = [own_token(one.name) for one in credentials if one.kind is CredentialKind.SITE]
    crossings = [*_crossings(streams)]
    if sites:
        members[SITES] = users[CredentialKind.SITE]
        crossings += _site_crossings(sites, own_token(site), stream_names(streams)) if site else ()
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
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in crossings:
        # several answers are remembered for longer than any pull waits
        more = {"response_type": "stream", "threshold": "60s"} if one.has_several else {}
        new = {one.kind: one.subject, **more, "accounts": []}
        export = found.setdefault((one.kind, one.subject), new)
        export["accounts"].append(one.into)
    return list(found.values())


def _user(credential: Credential, streams: int, site: str) -> Section:
    """Return the user of a credential; whoever has rights of its own is no other site."""
    rights = grant_rights(credential, streams, site)
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
    yield from filter(None, (_heard(LOGS, subject) for subject in SERVER_EVENTS))


def _site_crossings(others: Sequence[str], own: str, lines: Sequence[str]) -> Iterator[_Crossing]:
    """Yield what crosses between the streams of the site `own` and other sites.

    That a copy has come so far crosses into LOGS as a message and out of it as a question:
    nats-server takes the same kind in both directions for a cycle.
    """
    for subject in _copy_requests(own, lines):
        yield _Crossing(LOGS, SITES, subject, subject)
    for subject in _deliveries(own):
        yield _Crossing(LOGS, SITES, subject, subject, kind="stream")
    for kind in ("service", "stream"):
        yield _Crossing(SITES, LOGS, _FLOW, _FLOW, kind=kind)
    for other in others:
        if other == own:  # a broker is no other site to itself
            continue
        for subject in _copy_requests(other, lines):
            yield _Crossing(SITES, LOGS, subject, subject)
        for subject in _deliveries(other):
            yield _Crossing(SITES, LOGS, subject, subject, kind="stream")


def _asked(into: str, subject: str) -> _Crossing | None:
    """Return how what is published in an account gets to who listens; None for what stays in that account."""
    if subject.startswith(f"{API}."):
        return _called(into, subject.removeprefix(f"{API}."))
    if subject in SERVER_QUESTIONS:
        return _Crossing(SYS, into, subject, subject, has_several=True)
    if subject == REPORT_SUBJECT:
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
    return _Crossing(
        SYS if subject in SERVER_EVENTS else LOGS, into, subject, subject, kind="stream"
    )
