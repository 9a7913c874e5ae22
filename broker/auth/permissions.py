"""What each kind of credential may publish and subscribe to: the only table of rights.

`grant_rights` returns the rights of one credential. Each subject below has its reason beside it.

| kind | publishes | subscribes |
|---|---|---|
| host | its own lines and positions; API calls about these two | its inbox, pauses |
| receiver of `<N>` | offset, acks and consumers of `<N>` | its inbox, its own addresses |
| receiver of all | every offset; acks, consumers and messages of all streams | the same |
| monitor | API calls that change nothing; consumers of reserved names | its inbox, server events |
| site | requests for copies of our streams; copies of its own | requests for its own; our copies |
| admin | everything | everything |

Hosts, receivers, monitors and sites each have a NATS account of their own, outside of the account
LOGS of the streams (`broker/auth/accounts.py` derives the accounts from this table). The reason:
NATS does not check reply subjects. In LOGS a host could name another host's subject, or a key of a
bucket, as the reply subject of a request, and the answer would be stored there. The answer to a
request that crosses accounts reaches only the account that asked.

API calls have the prefix `API`, under which these accounts import the JetStream API of LOGS. Under
`$JS.API` each account would reach itself, and it has no JetStream. CONSUMER.CREATE is an exception:
logbroker answers it (`broker/server/consumer_requests.py`), because a right names the consumer but
not its configuration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
"""Prefix of the JetStream API in the accounts that import it."""

CONSUMER_REQUESTS = "logship.consumer"
"""Prefix of the subjects at which logbroker receives CONSUMER.CREATE of other accounts."""

RECEIVERS = "logship.receiver.>"
"""The addresses at which receivers are asked for their report."""

SERVER_EVENTS = ("$SYS.ACCOUNT.>", "$SYS.SERVER.>")
"""Events of the server, which admins and monitors may receive."""

SERVER_QUESTIONS = tuple(
    f"$SYS.REQ.SERVER.PING.{question}"
    for question in (
        *("VARZ", "CONNZ", "JSZ", "HEALTHZ", "ACCOUNTZ"),
        *("STATSZ", "SUBSZ", "ROUTEZ", "LEAFZ", "IDZ"),
    )
)
"""Questions about the server that change nothing, which admins and monitors may ask."""

FLOW_CONTROL = "$JS.FC.>"
"""Where a copy is acknowledged."""

_COPY_ANSWERS = "$JSC.R.*"  # where nats-server waits for the answer to its request for a copy,
_CROSSED_ANSWERS = "_R_.>"  # and where it waits if the request has crossed accounts
_WHOAMI = "$SYS.REQ.USER.INFO"  # each account answers this by itself
_OFFSETS = f"KV_{OFFSETS_BUCKET}"
_CONFIG = f"DIRECT.GET.KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}"
_READ_LAYOUT = (f"{_CONFIG}.{PARTITIONS_KEY}", f"{_CONFIG}.{STREAMS_KEY}")
_READ_PAUSE = f"{_CONFIG}.{PAUSE_KEY}"
_READ_OFFSETS = f"DIRECT.GET.{_OFFSETS}.$KV.{OFFSETS_BUCKET}.*"
_ANY = "*"

_MONITOR_CALLS = (
    *("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.*"),
    *("DIRECT.GET.*.>", "CONSUMER.NAMES.*", "CONSUMER.LIST.*", "CONSUMER.INFO.*.*"),
)
_RECEIVER_CALLS = (
    *("STREAM.MSG.GET.{}", "CONSUMER.INFO.{}.*", "CONSUMER.NAMES.{}", "CONSUMER.RESET.{}.*"),
    *("CONSUMER.CREATE.{}", "CONSUMER.CREATE.{}.>", "CONSUMER.DELETE.{}.*"),
    *("CONSUMER.MSG.NEXT.{}.*", "DIRECT.GET.{}"),
)


@dataclass(frozen=True, slots=True)
class SubjectRights:
    """Subjects that may be published and subscribed to.

    With `responds`, a client may also publish to the reply subject of each message it receives.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    responds: bool = False

    def as_section(self) -> Mapping[str, Any]:
        """Return the rights as the `permissions` of a user in nats-server's configuration."""
        return {
            "publish": {"allow": self.publish},
            "subscribe": {"allow": self.subscribe},
            "allow_responses": True if self.responds else None,
        }


def grant_rights(credential: Credential, streams: int, site: str = "") -> SubjectRights | None:
    """Return the rights of a credential; None for an admin, who has all rights.

    `streams` is the number of streams of lines, `site` the broker's own site (empty for none).
    """
    name = credential.name
    match credential.kind:
        case CredentialKind.HOST:
            return _grant_host(
                lines=host_filter(name),
                consumer=registry_consumer(name),
                key=positions_key(name),
                inbox=inbox_of(name),
            )
        case CredentialKind.RECEIVER:
            layout = StreamLayout(0, streams)
            return _grant_receiver(own_token(name), credential.partitions, layout)
        case CredentialKind.MONITOR:
            return _grant_monitor(reader_names(own_token(name)), inbox_of(name))
        case CredentialKind.SITE:
            return _grant_site(own_token(name), own_token(site), stream_names(streams))
        case CredentialKind.ADMIN:
            return None


def grant_any_name(kind: CredentialKind, streams: int) -> SubjectRights:
    """Return the rights that credentials of a kind can have, whatever their names are.

    Hosts, receivers and monitors only.
    """
    match kind:
        case CredentialKind.HOST:
            return _grant_host(lines="logs.>", consumer=_ANY, key=_ANY, inbox="_INBOX")
        case CredentialKind.RECEIVER:
            return _grant_receiver(_ANY, (), StreamLayout(0, streams))
        case _:
            return _grant_monitor((_ANY,), "_INBOX")


def _grant_host(lines: str, consumer: str, key: str, inbox: str) -> SubjectRights:
    """Grant in every stream what is the host's own, since its partition may change."""
    positions = f"$KV.{POSITIONS_BUCKET}.{key}"
    calls = (
        *_READ_LAYOUT,  # to find the host's partition and stream
        _READ_PAUSE,
        f"DIRECT.GET.*.{lines}",  # the last message of the host
        f"DIRECT.GET.KV_{POSITIONS_BUCKET}.{positions}",
        # a consumer that reads the headers of the host's own messages back
        f"CONSUMER.CREATE.*.{consumer}.{lines}",
        f"CONSUMER.DELETE.*.{consumer}",
        f"CONSUMER.MSG.NEXT.*.{consumer}",
    )
    return SubjectRights(
        publish=(lines, positions, *_api(*calls), _WHOAMI),
        subscribe=(f"{inbox}.>", PAUSE_SUBJECT),
    )


def _grant_receiver(own: str, partitions: Sequence[int], layout: StreamLayout) -> SubjectRights:
    """Grant the lines of some partitions, or of all if none is named."""
    leave = f"logship.leave.{own}.*"  # a receiver asks its own tasks to stop
    named = [right for partition in partitions for right in _grant_partition(partition, layout)]
    return SubjectRights(
        publish=(
            *_api(*(f"STREAM.INFO.{name}" for name in layout.names)),
            *_api(*_READ_LAYOUT),
            *_api(_READ_OFFSETS),  # a host's earlier lines may be in any partition
            *(named or _grant_all_partitions(layout.names)),
            RECEIVERS,  # to ask whether another owner of a partition is alive
            leave,
            _WHOAMI,
        ),
        subscribe=(f"_INBOX_{own}.>", leave, f"logship.receiver.{own}.*"),
        responds=True,  # to answer at its own addresses
    )


def _grant_partition(partition: int, layout: StreamLayout) -> tuple[str, ...]:
    stream, durable = layout.stream_of(partition), consumer_name(partition)
    lines, count = partition_filter(partition), count_name(partition)
    return (
        # the durable consumer through which the partition is read
        *_api(f"CONSUMER.CREATE.{stream}.{durable}.{lines}"),
        *_api(*(f"CONSUMER.{call}.{stream}.{durable}" for call in ("INFO", "RESET", "MSG.NEXT"))),
        f"$JS.ACK.{stream}.{durable}.>",
        f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}",
        # a short-lived consumer that reports new messages of the partition
        *_api(*(f"CONSUMER.CREATE.{stream}.{wake}.{lines}" for wake in wake_names(partition))),
        *_api(*(f"CONSUMER.DELETE.{stream}.{wake}" for wake in wake_names(partition))),
        *_api(*(f"CONSUMER.MSG.NEXT.{stream}.{wake}" for wake in wake_names(partition))),
        # a consumer that counts a host's messages in other partitions; reading them is no right
        *_api(*(f"CONSUMER.CREATE.{name}.{count}.logs.>" for name in layout.names)),
        *_api(*(f"CONSUMER.DELETE.{name}.{count}" for name in layout.names)),
    )


def _grant_all_partitions(streams: Sequence[str]) -> tuple[str, ...]:
    """Grant every partition, also later ones; `replay`, `verify` and SQL read the streams directly.

    NATS has no right to names with a common beginning, so other consumers are included.
    """
    return (
        *_api(*(call.format(name) for name in streams for call in _RECEIVER_CALLS)),
        *_api(f"STREAM.MSG.GET.{_OFFSETS}"),
        *(f"$JS.ACK.{name}.>" for name in streams),
        f"$KV.{OFFSETS_BUCKET}.*",
    )


def _grant_monitor(readers: Sequence[str], inbox: str) -> SubjectRights:
    """Grant reading, through consumers whose names only this monitor may use.

    A right to all consumer names would let a monitor remove the consumers of receivers.
    """
    consumers = [
        f"CONSUMER.{call}.*.{reader}{rest}"
        for reader in readers
        for call, rest in (("CREATE", ""), ("CREATE", ".>"), ("MSG.NEXT", ""), ("DELETE", ""))
    ]
    return SubjectRights(
        publish=(
            *_api(*_MONITOR_CALLS, *consumers),
            *(
                REPORT_SUBJECT,
                RECEIVERS,
                *SERVER_QUESTIONS,
            ),  # to ask brokers, receivers and servers
            _WHOAMI,
        ),
        subscribe=(
            f"{inbox}.>",
            *("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", *SERVER_EVENTS),  # `logbroker events`
        ),
    )


def _grant_site(other: str, own: str, lines: Sequence[str]) -> SubjectRights:
    """Grant the site `other`, which is connected to our site `own` as a leaf node, copies only.

    A leaf node may acknowledge for anybody in its account and receives all answers there. What a
    site copies has the site's name in its subjects, so no site can deliver lines for another.
    """
    return SubjectRights(
        publish=(
            *list_copy_requests(own, lines),  # it asks for copies of our streams,
            *list_deliveries(other),  # delivers copies of its own,
            FLOW_CONTROL,  # acknowledges ours,
            _CROSSED_ANSWERS,  # and answers our requests
        ),
        subscribe=(
            *list_copy_requests(other, lines),
            *list_deliveries(own),
            FLOW_CONTROL,
            _COPY_ANSWERS,
        ),
    )


def list_copied_streams(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the names of what another site may copy: the streams `lines`, and two buckets.

    Offsets are not copied, since each site has its own receivers.
    """
    return (*lines, f"KV_{CONFIG_BUCKET}", f"KV_{POSITIONS_BUCKET}")


def list_copy_requests(site: str, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the subjects at which a site is asked for copies of its streams."""
    return tuple(f"{site_api(site)}.CONSUMER.CREATE.{name}" for name in list_copied_streams(lines))


def list_deliveries(site: str) -> tuple[str, ...]:
    """Return the subjects under which copies of a site's streams arrive, as sources or mirrors."""
    return tuple(f"{site_prefix(site)}.{kind}.*" for kind in ("S", "M"))


def _api(*calls: str) -> tuple[str, ...]:
    return tuple(f"{API}.{call}" for call in calls)
