"""What an identity may publish and hear, as values: the least that its program needs. Decides; grants nothing itself.

Requests to JetStream carry `API`, the prefix under which the accounts of hosts and receivers import it; there is no
right to the API of their own account, which has no JetStream and would answer too.
"""

from dataclasses import dataclass

from broker.auth.monitor import HEARD, SERVER_QUESTIONS, monitor_calls
from broker.auth.store import Credential, CredentialKind
from broker.report import SUBJECT as REPORT
from broker.wire.pause import PAUSE_KEY, PAUSE_SUBJECT
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    STREAM,
    offset_key,
    positions_key,
)
from broker.wire.subjects import (
    bell_names,
    consumer_name,
    host_filter,
    inbox_of,
    own_token,
    partition_filter,
    registry_consumer,
)

__all__ = ["API", "Permissions", "permissions_of"]

API = "JS.LOGS.API"
"""The prefix of the JetStream API in the accounts that import it."""

_OFFSETS = f"KV_{OFFSETS_BUCKET}"
_PARTITIONS = f"DIRECT.GET.KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}.{PARTITIONS_KEY}"
_PAUSE = f"DIRECT.GET.KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}.{PAUSE_KEY}"
_ALL_OFFSETS = (
    f"DIRECT.GET.{_OFFSETS}.$KV.{OFFSETS_BUCKET}.*"  # lines of a host may follow any partition's
)
_WHOAMI = "$SYS.REQ.USER.INFO"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects that may be published to and subscribed; with `responds` also whatever a message heard asks to reply to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    responds: bool = False


_COPIES = Permissions(
    (
        *(
            f"$JS.*.API.CONSUMER.CREATE.{name}{rest}"
            for name in (STREAM, f"KV_{CONFIG_BUCKET}", f"KV_{POSITIONS_BUCKET}")
            for rest in ("", ".>")
        ),
        *(_COPIED := ("$JS.S.>", "$JS.M.>", "$JSC.R.>", "$JS.FC.>")),
    ),
    (f"$JS.*.API.CONSUMER.CREATE.{STREAM}", f"$JS.*.API.CONSUMER.CREATE.{STREAM}.>", *_COPIED),
)
"""What servers of two sites ask each other for copies, and how copies go: subjects of nats-server 2.15's own."""


def permissions_of(credential: Credential) -> Permissions | None:
    """Return the rights of a credential in its account; None for an admin, who has all that there are."""
    match credential.kind:
        case CredentialKind.HOST:
            return _of_host(credential.name)
        case CredentialKind.RECEIVER:
            return _of_receiver(credential)
        case CredentialKind.ADMIN:
            return None
        case CredentialKind.MONITOR:
            return _of_monitor(credential.name)
        case CredentialKind.SITE:
            return _COPIES


def _of_host(host: str) -> Permissions:
    own, consumer = host_filter(host), registry_consumer(host)
    positions = f"$KV.{POSITIONS_BUCKET}.{positions_key(host)}"
    return Permissions(
        (
            own,
            positions,
            *_api(
                f"DIRECT.GET.{STREAM}.{own}",
                _PARTITIONS,
                _PAUSE,
                f"DIRECT.GET.KV_{POSITIONS_BUCKET}.{positions}",
                f"CONSUMER.CREATE.{STREAM}.{consumer}.{own}",
                f"CONSUMER.DELETE.{STREAM}.{consumer}",
                f"CONSUMER.MSG.NEXT.{STREAM}.{consumer}",
            ),
            _WHOAMI,
        ),
        (f"{inbox_of(host)}.>", PAUSE_SUBJECT),
    )


def _of_receiver(credential: Credential) -> Permissions:
    """Return the rights of a receiver: it answers at its own addresses only, and asks others at theirs."""
    own = own_token(credential.name)
    leave = f"logship.leave.{own}.*"
    lines = [
        right
        for partition in credential.partitions
        for right in (*_api(*_partition_api(partition)), *_partition_writes(partition))
    ]
    return Permissions(
        (
            *_api(f"STREAM.INFO.{STREAM}", _PARTITIONS, _ALL_OFFSETS),
            *(lines if credential.partitions else _all_partitions()),
            "logship.receiver.>",
            leave,
            _WHOAMI,
        ),
        (f"{inbox_of(credential.name)}.>", leave, f"logship.receiver.{own}.*"),
        responds=True,
    )


def _of_monitor(name: str) -> Permissions:
    own = own_token(name)
    return Permissions(
        (
            *_api(*monitor_calls(own)),
            REPORT,
            "logship.receiver.>",
            *SERVER_QUESTIONS,
            _WHOAMI,
        ),
        (f"{inbox_of(name)}.>", "$JS.EVENT.ADVISORY.>", *HEARD),
    )


def _partition_api(partition: int) -> tuple[str, ...]:
    durable, lines = consumer_name(partition), partition_filter(partition)
    bells = [
        call
        for bell in bell_names(partition)
        for call in (
            f"CONSUMER.CREATE.{STREAM}.{bell}.{lines}",
            f"CONSUMER.DELETE.{STREAM}.{bell}",
            f"CONSUMER.MSG.NEXT.{STREAM}.{bell}",
        )
    ]
    return (
        f"CONSUMER.CREATE.{STREAM}.{durable}.{lines}",
        f"CONSUMER.INFO.{STREAM}.{durable}",
        f"CONSUMER.RESET.{STREAM}.{durable}",
        f"CONSUMER.MSG.NEXT.{STREAM}.{durable}",
        *bells,
    )


def _partition_writes(partition: int) -> tuple[str, ...]:
    return (
        f"$JS.ACK.{STREAM}.{consumer_name(partition)}.>",
        f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}",
    )


def _all_partitions() -> tuple[str, ...]:
    """Return what reaches every partition, those to come included, and reads the whole stream by any means."""
    return (
        *_api(
            f"CONSUMER.CREATE.{STREAM}",
            f"CONSUMER.CREATE.{STREAM}.>",
            f"CONSUMER.INFO.{STREAM}.*",
            f"CONSUMER.NAMES.{STREAM}",
            f"CONSUMER.RESET.{STREAM}.*",
            f"CONSUMER.DELETE.{STREAM}.*",
            f"CONSUMER.MSG.NEXT.{STREAM}.*",
            f"STREAM.MSG.GET.{STREAM}",
            f"STREAM.MSG.GET.{_OFFSETS}",
            f"DIRECT.GET.{STREAM}",
        ),
        f"$JS.ACK.{STREAM}.>",
        f"$KV.{OFFSETS_BUCKET}.*",
    )


def _api(*calls: str) -> tuple[str, ...]:
    return tuple(f"{API}.{call}" for call in calls)
