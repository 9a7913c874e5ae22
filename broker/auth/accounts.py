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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType

from broker.auth.permissions import (
    API,
    HEARD,
    MONITOR_BATCHES,
    MONITOR_READS,
    SERVER_QUESTIONS,
    SubjectRights,
    permissions_of,
)
from broker.auth.store import Credential, CredentialKind, CredentialStore
from broker.report import SUBJECT
from broker.wire.pause import PAUSE_SUBJECT
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, stream_names

__all__ = [
    "CONSUMER_REQUESTS",
    "LOGS",
    "MONITOR",
    "RECEIVE",
    "SHIP",
    "SYS",
    "Account",
    "AccountLimits",
    "Accounts",
    "Admission",
    "Crossing",
    "CrossingKind",
    "User",
    "accounts_of",
    "admit",
]

LOGS, SHIP, RECEIVE, MONITOR, SYS = "LOGS", "SHIP", "RECEIVE", "MONITOR", "SYS"

CONSUMER_REQUESTS = "logship.consumer"
"""Where logbroker hears of the consumers that hosts and receivers want, which have no way to CONSUMER.CREATE itself."""

_JETSTREAM = "$JS.API"


class CrossingKind(Enum):
    """What crosses: a question with one answer, a question with several, or messages for whoever listens."""

    QUESTION = "question"
    QUESTIONS = "questions"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Crossing:
    """What the account `into` has of the account `of`: `subject` there, `local` here, wildcards in both alike."""

    of: str
    into: str
    subject: str
    local: str
    traffic: CrossingKind = CrossingKind.QUESTION


@dataclass(frozen=True, slots=True)
class User:
    """Who gets in by an nkey; without `permissions` to everything in the account."""

    nkey: str
    permissions: SubjectRights | None = None
    is_server: bool = False
    """Another broker, and no client."""


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """The most connections of all users of an account together, and the most subscriptions of each connection.

    So one leaked secret cannot shut the others out.
    """

    connections: int
    subscriptions: int


@dataclass(frozen=True, slots=True)
class Account:
    """An account and its users, and what they may take, where that is limited."""

    name: str
    users: tuple[User, ...] = ()
    has_jetstream: bool = False
    limits: AccountLimits | None = None


@dataclass(frozen=True, slots=True)
class Accounts:
    """All accounts; whoever comes without a key is the user of the key `anybody`, or is refused where that is empty."""

    accounts: tuple[Account, ...]
    crossings: tuple[Crossing, ...]
    anybody: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """What nats-server is told of who gets in, and the revision of the credential store that it comes from.

    At `until` the next former key ends.
    """

    accounts: Accounts
    revision: int
    secured: bool
    credentials: int
    until: datetime | None


def admit(
    store: CredentialStore,
    own: str,
    anybody: str,
    now: datetime,
    limits: Mapping[str, AccountLimits] = MappingProxyType({}),
    *,
    streams: int,
) -> Admission:
    """Return who gets in at `now`: logbroker itself by the key `own`, and whoever the store says.

    Of a store that is not secured everybody gets in, as the user of the key `anybody`, whose seed nobody has; the accounts
    are the same, so that the first credential changes users only. `limits` are by the name of the account.
    `streams` is how many streams partitions are spread over.
    """
    key = "" if store.secured else anybody
    accounts = accounts_of(store.credentials, own, now, limits, key, streams=streams)
    end = store.next_end(now)
    return Admission(accounts, store.revision, store.secured, len(store.credentials), end)


def accounts_of(
    credentials: Sequence[Credential],
    own: str,
    now: datetime,
    limits: Mapping[str, AccountLimits] = MappingProxyType({}),
    anybody: str = "",
    *,
    streams: int,
) -> Accounts:
    """Return the accounts of a broker that lets in these credentials and logbroker itself, by the key `own`."""
    everybody = (User(anybody),) if anybody else ()
    users = {kind: tuple(_users(credentials, kind, now, streams)) for kind in CredentialKind}
    inside = (User(own), *users[CredentialKind.ADMIN], *users[CredentialKind.SITE], *everybody)
    return Accounts(
        (
            Account(SYS),
            Account(LOGS, inside, has_jetstream=True, limits=limits.get(LOGS)),
            Account(SHIP, users[CredentialKind.HOST], limits=limits.get(SHIP)),
            Account(RECEIVE, users[CredentialKind.RECEIVER], limits=limits.get(RECEIVE)),
            Account(MONITOR, users[CredentialKind.MONITOR], limits=limits.get(MONITOR)),
        ),
        _crossings(stream_names(streams)),
        anybody,
    )


def _users(
    credentials: Iterable[Credential], kind: CredentialKind, now: datetime, streams: int
) -> Iterator[User]:
    for credential in credentials:
        if credential.kind is kind:
            permissions = permissions_of(credential, streams)
            for key in credential.accepted_keys(now):
                yield User(key, permissions, is_server=kind is CredentialKind.SITE)


def _calls(into: str, traffic: CrossingKind, *calls: str) -> tuple[Crossing, ...]:
    # renamed, since the importing account answers to $JS.API itself: that it has no JetStream
    return tuple(
        Crossing(LOGS, into, f"{_JETSTREAM}.{call}", f"{API}.{call}", traffic) for call in calls
    )


def _same(of: str, into: str, traffic: CrossingKind, *subjects: str) -> tuple[Crossing, ...]:
    return tuple(Crossing(of, into, subject, subject, traffic) for subject in subjects)


def _consumers(into: str, *names: str) -> tuple[Crossing, ...]:
    return tuple(
        Crossing(LOGS, into, f"{CONSUMER_REQUESTS}.{name}", f"{API}.CONSUMER.CREATE.{name}")
        for name in names
    )


_PARTITIONS = f"DIRECT.GET.KV_{CONFIG_BUCKET}.>"

_SHIPPERS = (
    *_same(LOGS, SHIP, CrossingKind.QUESTION, "logs.>", f"$KV.{POSITIONS_BUCKET}.*"),
    *_calls(
        SHIP,
        CrossingKind.QUESTION,
        "DIRECT.GET.*.logs.>",
        _PARTITIONS,
        f"DIRECT.GET.KV_{POSITIONS_BUCKET}.>",
        "CONSUMER.DELETE.*.*",
    ),
    *_same(LOGS, SHIP, CrossingKind.MESSAGES, PAUSE_SUBJECT),
    *_consumers(SHIP, "*.*.logs.>"),
    *_calls(SHIP, CrossingKind.QUESTIONS, "CONSUMER.MSG.NEXT.*.*"),
)
_MONITORS = (
    *_calls(MONITOR, CrossingKind.QUESTION, *MONITOR_READS, "CONSUMER.DELETE.*.*"),
    *_calls(MONITOR, CrossingKind.QUESTIONS, *MONITOR_BATCHES, "CONSUMER.MSG.NEXT.*.*"),
    *_consumers(MONITOR, "*.*", "*.*.>"),
    *_same(LOGS, MONITOR, CrossingKind.QUESTIONS, SUBJECT),
    *_same(LOGS, MONITOR, CrossingKind.MESSAGES, "$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>"),
    *_same(RECEIVE, MONITOR, CrossingKind.QUESTION, "logship.receiver.>"),
)
_SERVERS = tuple(
    crossing
    for into in (LOGS, MONITOR)
    for crossing in (
        *_same(SYS, into, CrossingKind.QUESTIONS, *SERVER_QUESTIONS),
        *_same(SYS, into, CrossingKind.MESSAGES, *HEARD),
    )
)


def _crossings(streams: Sequence[str]) -> tuple[Crossing, ...]:
    return (
        *_SHIPPERS,
        *_same(LOGS, RECEIVE, CrossingKind.QUESTION, f"$KV.{OFFSETS_BUCKET}.*"),
        *_calls(
            RECEIVE,
            CrossingKind.QUESTION,
            _PARTITIONS,
            f"DIRECT.GET.KV_{OFFSETS_BUCKET}.>",
            f"STREAM.MSG.GET.KV_{OFFSETS_BUCKET}",
        ),
        *(crossing for name in streams for crossing in _of_receivers(name)),
        *_same(RECEIVE, LOGS, CrossingKind.QUESTION, "logship.receiver.>"),
        *_MONITORS,
        *_SERVERS,
    )


def _of_receivers(stream: str) -> tuple[Crossing, ...]:
    return (
        *_same(LOGS, RECEIVE, CrossingKind.QUESTION, f"$JS.ACK.{stream}.>"),
        *_calls(
            RECEIVE,
            CrossingKind.QUESTION,
            f"STREAM.INFO.{stream}",
            f"STREAM.MSG.GET.{stream}",
            f"CONSUMER.INFO.{stream}.*",
            f"CONSUMER.NAMES.{stream}",
            f"CONSUMER.RESET.{stream}.*",
            f"CONSUMER.DELETE.{stream}.*",
        ),
        *_consumers(RECEIVE, stream, f"{stream}.>"),
        *_calls(
            RECEIVE,
            CrossingKind.QUESTIONS,
            f"CONSUMER.MSG.NEXT.{stream}.*",
            f"DIRECT.GET.{stream}",
        ),
    )
