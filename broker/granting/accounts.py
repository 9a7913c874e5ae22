"""The accounts of the broker, as values: who is in which, and what crosses between them. Decides; writes nothing.

| account | who is in it | what is there |
|---|---|---|
| LOGS | admins and logbroker itself; everybody as long as there are no credentials | stream and buckets |
| SHIP | hosts | what they need of LOGS |
| RECEIVE | receivers, who also speak with each other | what they need of LOGS |
| SYS | nobody | the server's events and questions about it, of which LOGS has those that change nothing |

Hosts and receivers stand outside of LOGS because permissions look at no reply subject: an acknowledgement in LOGS
could be had sent to another host's subject, or to a key of a bucket, and would be stored there. What answers a service
import goes to subscribers in the account that asked, and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from broker.granting.identity import Identity, Kind, Nkey, Password, Proof
from broker.granting.limits import Limits
from broker.granting.permissions import API, Permissions, permissions_of
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = [
    "CONSUMER_REQUESTS",
    "LOGS",
    "RECEIVE",
    "SHIP",
    "SYS",
    "Account",
    "Accounts",
    "Crossing",
    "Traffic",
    "User",
    "accounts_of",
    "open_accounts",
]

LOGS, SHIP, RECEIVE, SYS = "LOGS", "SHIP", "RECEIVE", "SYS"

CONSUMER_REQUESTS = "logship.consumer"
"""Where logbroker hears of the consumers that hosts and receivers want, which have no way to CONSUMER.CREATE itself."""

_JETSTREAM = "$JS.API"
_ASKED = (
    "VARZ",
    "CONNZ",
    "JSZ",
    "HEALTHZ",
    "ACCOUNTZ",
    "STATSZ",
    "SUBSZ",
    "ROUTEZ",
    "LEAFZ",
    "IDZ",
)


class Traffic(Enum):
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
    traffic: Traffic = Traffic.QUESTION


@dataclass(frozen=True, slots=True)
class User:
    """Who gets in by a proof; without `permissions` to everything in the account."""

    proof: Proof
    permissions: Permissions | None = None
    is_server: bool = False
    """Another broker, and no client."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account and its users, and what they may take, where that is limited."""

    name: str
    users: tuple[User, ...] = ()
    has_jetstream: bool = False
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class Accounts:
    """All accounts; whoever comes without a proof is the user of the key `anybody`, or is refused where that is empty."""

    accounts: tuple[Account, ...]
    crossings: tuple[Crossing, ...]
    anybody: str = ""


def accounts_of(identities: Sequence[Identity], own: Proof) -> Accounts:
    """Return the accounts of a broker that lets in these identities and logbroker itself, by `own`; nobody else."""
    return Accounts(
        (
            Account(SYS),
            Account(
                LOGS,
                (
                    User(own),
                    *_users(identities, Kind.ADMIN),
                    *(replace(one, is_server=True) for one in _users(identities, Kind.SITE)),
                ),
                has_jetstream=True,
            ),
            Account(SHIP, _users(identities, Kind.HOST)),
            Account(RECEIVE, _users(identities, Kind.RECEIVER)),
        ),
        _CROSSINGS,
    )


def open_accounts(own: Password, anybody: Nkey) -> Accounts:
    """Return the accounts of a broker without credentials: whoever reaches it may do everything in LOGS.

    They are those with credentials, so that the first credential changes users only. `anybody` is a key that nobody has
    the seed of: nats-server would compare the hash of a password with itself, and let in nobody.
    """
    closed = accounts_of((), own)
    opened = [
        replace(one, users=(*one.users, User(anybody))) if one.name == LOGS else one
        for one in closed.accounts
    ]
    return replace(closed, accounts=tuple(opened), anybody=anybody.public)


def _users(identities: Sequence[Identity], kind: Kind) -> tuple[User, ...]:
    return tuple(
        User(identity.proof, permissions_of(identity))
        for identity in identities
        if identity.kind is kind
    )


def _calls(into: str, traffic: Traffic, *calls: str) -> tuple[Crossing, ...]:
    # renamed, since the importing account answers to $JS.API itself: that it has no JetStream
    return tuple(
        Crossing(LOGS, into, f"{_JETSTREAM}.{call}", f"{API}.{call}", traffic) for call in calls
    )


def _same(of: str, into: str, traffic: Traffic, *subjects: str) -> tuple[Crossing, ...]:
    return tuple(Crossing(of, into, subject, subject, traffic) for subject in subjects)


def _consumers(into: str, *names: str) -> tuple[Crossing, ...]:
    return tuple(
        Crossing(LOGS, into, f"{CONSUMER_REQUESTS}.{name}", f"{API}.CONSUMER.CREATE.{name}")
        for name in names
    )


_PARTITIONS = f"DIRECT.GET.KV_{CONFIG_BUCKET}.>"

_CROSSINGS = (
    *_same(LOGS, SHIP, Traffic.QUESTION, "logs.>", f"$KV.{POSITIONS_BUCKET}.*"),
    *_calls(
        SHIP,
        Traffic.QUESTION,
        f"DIRECT.GET.{STREAM}.logs.>",
        _PARTITIONS,
        f"DIRECT.GET.KV_{POSITIONS_BUCKET}.>",
        f"CONSUMER.DELETE.{STREAM}.*",
    ),
    *_consumers(SHIP, f"{STREAM}.*.logs.>"),
    *_calls(SHIP, Traffic.QUESTIONS, f"CONSUMER.MSG.NEXT.{STREAM}.*"),
    *_same(LOGS, RECEIVE, Traffic.QUESTION, f"$KV.{OFFSETS_BUCKET}.*", f"$JS.ACK.{STREAM}.>"),
    *_calls(
        RECEIVE,
        Traffic.QUESTION,
        _PARTITIONS,
        f"DIRECT.GET.KV_{OFFSETS_BUCKET}.>",
        f"STREAM.INFO.{STREAM}",
        f"STREAM.MSG.GET.{STREAM}",
        f"STREAM.MSG.GET.KV_{OFFSETS_BUCKET}",
        f"CONSUMER.INFO.{STREAM}.*",
        f"CONSUMER.NAMES.{STREAM}",
        f"CONSUMER.RESET.{STREAM}.*",
        f"CONSUMER.DELETE.{STREAM}.*",
    ),
    *_consumers(RECEIVE, STREAM, f"{STREAM}.>"),
    *_calls(
        RECEIVE,
        Traffic.QUESTIONS,
        f"CONSUMER.MSG.NEXT.{STREAM}.*",
        f"DIRECT.GET.{STREAM}",
    ),
    *_same(RECEIVE, LOGS, Traffic.QUESTION, "logship.receiver.>"),
    *_same(
        SYS, LOGS, Traffic.QUESTIONS, *(f"$SYS.REQ.SERVER.PING.{question}" for question in _ASKED)
    ),
    *_same(SYS, LOGS, Traffic.MESSAGES, "$SYS.ACCOUNT.>", "$SYS.SERVER.>"),
)
