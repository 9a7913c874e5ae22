"""The rights of each kind of credential: the subjects that it may publish and subscribe to.

`grant_rights` returns the rights of one credential, and nats-server enforces them. An admin may do
everything; the other kinds have no rights but these. The examples are for a broker with one stream,
LOGS, and a test compares them with the code. `API` is `JS.LOGS.API`. `{a,b}` and `{0..7}` mean
one subject for each.

Host `web01` publishes:
    logs.*.web01                            its lines; its partition may change
    $KV.LOGS_POSITIONS.web01                its positions in its files
    API.DIRECT.GET.KV_LOGS_POSITIONS.$KV.LOGS_POSITIONS.web01      reads its positions
    API.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.{partitions,streams}     finds its partition
    API.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.{pause,interval}         reads when to send
    API.DIRECT.GET.*.logs.*.web01           reads its last message
    API.CONSUMER.CREATE.*.shipper-web01.logs.*.web01               reads its messages' headers
    API.CONSUMER.{MSG.NEXT,DELETE}.*.shipper-web01                 the same
    $SYS.REQ.USER.INFO                      asks for its own rights (`nats account info`)
Host `web01` subscribes to:
    _INBOX_web01.>                          answers to its requests
    $KV.LOGS_CONFIG.{pause,interval}        an admin's pauses, the interval of rounds

Receiver `r2` of partition 2 publishes (and it may answer each message that it receives):
    $KV.LOGS_OFFSETS.p2                     commits the offset
    API.CONSUMER.CREATE.LOGS.receiver-p2.logs.p2.>       makes the durable consumer of its lines
    API.CONSUMER.{INFO,RESET,MSG.NEXT,DELETE}.LOGS.receiver-p2  reads through this consumer
    $JS.ACK.LOGS.receiver-p2.>              acknowledges lines
    API.CONSUMER.CREATE.LOGS.wake-p2-{0..7}.logs.p2.>    learns of new messages
    API.CONSUMER.{MSG.NEXT,DELETE}.LOGS.wake-p2-{0..7}   the same
    API.CONSUMER.CREATE.LOGS.count-p2.logs.>   counts a host's messages in other partitions
    API.CONSUMER.DELETE.LOGS.count-p2       the same
    API.DIRECT.GET.KV_LOGS_OFFSETS.$KV.LOGS_OFFSETS.*    reads all offsets
    API.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.{partitions,streams}     finds its stream
    API.STREAM.INFO.LOGS                    asks whether a stream was created again
    logship.receiver.>                      asks whether another owner of a partition is alive
    logship.leave.r2.*                      asks its own tasks to stop
    $SYS.REQ.USER.INFO                      asks for its own rights
Receiver `r2` of partition 2 subscribes to:
    _INBOX_r2.>                             answers to its requests
    logship.leave.r2.*                      its own request to stop
    logship.receiver.r2.*                   questions of others about its partitions

It reads all offsets, since a host may have moved from any partition. It may create the consumers
`count-p2` in every stream, but not read from them.

Receiver `all` of all partitions publishes, in place of the subjects with `p2`:
    $KV.LOGS_OFFSETS.*                      commits every offset, also of later partitions
    $JS.ACK.LOGS.>                          acknowledges lines
    API.CONSUMER.{CREATE.LOGS,CREATE.LOGS.>,NAMES.LOGS}  reads through any consumer
    API.CONSUMER.{INFO,RESET,MSG.NEXT,DELETE}.LOGS.*     the same
    API.{STREAM.MSG.GET,DIRECT.GET}.LOGS    `replay`, `verify` and SQL read the stream directly
    API.STREAM.{INFO,MSG.GET}.KV_LOGS_OFFSETS   lists and reads offsets, and how far tables are

It has a right to every consumer: a wildcard of NATS matches whole tokens, never `receiver-*`.

Monitor `m1` publishes:
    API.{INFO,STREAM.NAMES,STREAM.LIST}     calls that change nothing
    API.{STREAM.INFO,STREAM.MSG.GET,DIRECT.GET,CONSUMER.NAMES,CONSUMER.LIST}.*     the same
    API.{DIRECT.GET.*.>,CONSUMER.INFO.*.*}  the same
    API.CONSUMER.CREATE.*.reader-m1-{0..23}    reads lines
    API.CONSUMER.CREATE.*.reader-m1-{0..23}.>  the same
    API.CONSUMER.{MSG.NEXT,DELETE}.*.reader-m1-{0..23}   the same
    logship.broker                          asks brokers for their report
    logship.receiver.>                      asks receivers for theirs
    $SYS.REQ.SERVER.PING.{VARZ,CONNZ,JSZ,HEALTHZ,ACCOUNTZ}  asks nats-server for its state
    $SYS.REQ.SERVER.PING.{STATSZ,SUBSZ,ROUTEZ,LEAFZ,IDZ}    the same
    $SYS.REQ.USER.INFO                      asks for its own rights
Monitor `m1` subscribes to:
    _INBOX_m1.>                             answers to its requests
    $JS.EVENT.{ADVISORY,METRIC}.>           events, for `logbroker events`
    $SYS.{ACCOUNT,SERVER}.>                 the same

It reads through consumers of these names only: with a right to all names, it could delete the
consumers of receivers.

Site `away` publishes, at the broker of the site `here`:
    SITE.here.API.CONSUMER.CREATE.{LOGS,KV_LOGS_CONFIG,KV_LOGS_POSITIONS}  asks for copies
    SITE.away.{S,M}.*                       delivers copies of its streams to `here`
    $JS.FC.>                                acknowledges copies of the streams of `here`
    _R_.>                                   answers requests of `here`
Site `away` subscribes to, at the broker of the site `here`:
    SITE.away.API.CONSUMER.CREATE.{LOGS,KV_LOGS_CONFIG,KV_LOGS_POSITIONS}  requests of it
    SITE.here.{S,M}.*                       copies of the streams of `here`
    $JS.FC.>                                acknowledgements of copies of its streams
    $JSC.R.*                                answers to its requests

A name with other characters than letters, digits, `_` and `-` is replaced by a digest, except in
`logs.*.<host>`.

Each kind but admin has one NATS account, outside of the account LOGS of the streams
(`broker/auth/accounts.py` derives the accounts from these rights). The reason: NATS does not check
reply subjects. In LOGS a host could name another host's subject, or a key of a bucket, as the reply
subject of a request, and the answer would be stored there. The answer to a request to an imported
subject reaches only the account that asked.

`API` is the prefix under which these accounts import the JetStream API of LOGS. Under `$JS.API`
each account would reach its own JetStream, and it has none. logbroker itself answers
CONSUMER.CREATE (`broker/server/requests.py`), because a right names the consumer but not
its configuration.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.auth.credentials import Credential, CredentialKind
from broker.report import REPORT_SUBJECT
from broker.topology import site_api, site_prefix
from nats_logship.wire.interval import INTERVAL_KEY, INTERVAL_SUBJECT
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
    make_inbox,
    make_token,
    partition_filter,
    reader_names,
    shipper_consumer,
    wake_names,
)

API = "JS.LOGS.API"
"""Prefix of the JetStream API in the accounts that import it."""

CONSUMER_REQUESTS = "logship.consumer"
"""Prefix of the subjects at which logbroker receives CONSUMER.CREATE of other accounts."""

RECEIVERS = "logship.receiver.>"
"""The addresses at which receivers are asked for their report."""

SERVER_EVENTS = ("$SYS.ACCOUNT.>", "$SYS.SERVER.>")
"""Events of nats-server, which admins and monitors may receive."""

SERVER_QUESTIONS = tuple(
    f"$SYS.REQ.SERVER.PING.{question}"
    for question in (
        *("VARZ", "CONNZ", "JSZ", "HEALTHZ", "ACCOUNTZ"),
        *("STATSZ", "SUBSZ", "ROUTEZ", "LEAFZ", "IDZ"),
    )
)
"""Questions to nats-server that change nothing, which admins and monitors may ask."""

FLOW_CONTROL = "$JS.FC.>"
"""The subjects at which copies are acknowledged."""

_COPY_ANSWERS = "$JSC.R.*"  # nats-server waits here for the answer to its request for a copy
_IMPORT_ANSWERS = "_R_.>"  # and here if it sent the request to an imported subject
_ASK_RIGHTS = "$SYS.REQ.USER.INFO"
_OFFSETS = f"KV_{OFFSETS_BUCKET}"
_CONFIG = f"DIRECT.GET.KV_{CONFIG_BUCKET}.$KV.{CONFIG_BUCKET}"
_READ_LAYOUT = (f"{_CONFIG}.{PARTITIONS_KEY}", f"{_CONFIG}.{STREAMS_KEY}")
_ANY = "*"
_OF_DURABLE = ("INFO", "RESET", "MSG.NEXT", "DELETE")

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


def grant_rights(credential: Credential, stream_count: int, site: str = "") -> SubjectRights | None:
    """Return the rights of a credential; None for an admin, who has all rights.

    `stream_count` is the number of streams of lines, `site` the broker's own site (empty for none).
    """
    name = credential.name
    match credential.kind:
        case CredentialKind.ADMIN:
            return None
        case CredentialKind.SITE:
            return _grant_site(make_token(name), make_token(site), stream_names(stream_count))
        case CredentialKind.HOST:
            rights = _grant_host(host_filter(name), shipper_consumer(name), positions_key(name))
        case CredentialKind.RECEIVER:
            layout = StreamLayout(0, stream_count)
            rights = _grant_receiver(make_token(name), credential.partitions, layout)
        case CredentialKind.MONITOR:
            rights = _grant_monitor(reader_names(make_token(name)))
    return replace(rights, subscribe=(f"{make_inbox(name)}.>", *rights.subscribe))


def list_rights_of_kind(kind: CredentialKind, stream_count: int) -> SubjectRights:
    """Return all rights that hosts, receivers or monitors of any name have, except to inboxes."""
    match kind:
        case CredentialKind.HOST:
            return _grant_host("logs.>", _ANY, _ANY)
        case CredentialKind.RECEIVER:
            return _grant_receiver(_ANY, (), StreamLayout(0, stream_count))
        case _:
            return _grant_monitor((_ANY,))


def _grant_host(subject: str, consumer: str, key: str) -> SubjectRights:
    positions = f"$KV.{POSITIONS_BUCKET}.{key}"
    calls = (
        *_READ_LAYOUT,
        f"{_CONFIG}.{PAUSE_KEY}",
        f"{_CONFIG}.{INTERVAL_KEY}",
        f"DIRECT.GET.*.{subject}",
        f"DIRECT.GET.KV_{POSITIONS_BUCKET}.{positions}",
        f"CONSUMER.CREATE.*.{consumer}.{subject}",
        f"CONSUMER.DELETE.*.{consumer}",
        f"CONSUMER.MSG.NEXT.*.{consumer}",
    )
    return SubjectRights(
        publish=(subject, positions, *_prefix_api(*calls), _ASK_RIGHTS),
        subscribe=(PAUSE_SUBJECT, INTERVAL_SUBJECT),
    )


def _grant_receiver(token: str, partitions: Sequence[int], layout: StreamLayout) -> SubjectRights:
    """Grant the lines of some partitions, or of all if none is named."""
    leave = f"logship.leave.{token}.*"
    named = [right for partition in partitions for right in _grant_partition(partition, layout)]
    calls = (
        *(f"STREAM.INFO.{name}" for name in layout.names),
        *_READ_LAYOUT,
        f"DIRECT.GET.{_OFFSETS}.$KV.{OFFSETS_BUCKET}.*",
    )
    return SubjectRights(
        publish=(
            *_prefix_api(*calls),
            *(named or _grant_all_partitions(layout.names)),
            *(RECEIVERS, leave, _ASK_RIGHTS),
        ),
        subscribe=(leave, f"logship.receiver.{token}.*"),
        responds=True,
    )


def _grant_partition(partition: int, layout: StreamLayout) -> tuple[str, ...]:
    stream, durable = layout.stream_of(partition), consumer_name(partition)
    lines_filter, count = partition_filter(partition), count_name(partition)
    calls = [f"CONSUMER.CREATE.{stream}.{durable}.{lines_filter}"]
    calls += [f"CONSUMER.{call}.{stream}.{durable}" for call in _OF_DURABLE]
    for wake in wake_names(partition):
        calls.append(f"CONSUMER.CREATE.{stream}.{wake}.{lines_filter}")
        calls += [f"CONSUMER.{call}.{stream}.{wake}" for call in ("DELETE", "MSG.NEXT")]
    for name in layout.names:
        calls += [f"CONSUMER.CREATE.{name}.{count}.logs.>", f"CONSUMER.DELETE.{name}.{count}"]
    return (
        *_prefix_api(*calls),
        f"$JS.ACK.{stream}.{durable}.>",
        f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}",
    )


def _grant_all_partitions(names: Sequence[str]) -> tuple[str, ...]:
    return (
        *_prefix_api(*(call.format(name) for name in names for call in _RECEIVER_CALLS)),
        *_prefix_api(f"STREAM.INFO.{_OFFSETS}", f"STREAM.MSG.GET.{_OFFSETS}"),
        *(f"$JS.ACK.{name}.>" for name in names),
        f"$KV.{OFFSETS_BUCKET}.*",
    )


def _grant_monitor(readers: Sequence[str]) -> SubjectRights:
    consumers = [
        f"CONSUMER.{call}.*.{reader}{rest}"
        for reader in readers
        for call, rest in (("CREATE", ""), ("CREATE", ".>"), ("MSG.NEXT", ""), ("DELETE", ""))
    ]
    asked = (REPORT_SUBJECT, RECEIVERS, *SERVER_QUESTIONS, _ASK_RIGHTS)
    return SubjectRights(
        publish=(*_prefix_api(*_MONITOR_CALLS, *consumers), *asked),
        subscribe=("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", *SERVER_EVENTS),
    )


def _grant_site(other: str, site: str, names: Sequence[str]) -> SubjectRights:
    """Grant the site `other`, a leaf node of our site `site`, only copies.

    A leaf node may acknowledge for any client of its account, and receives all answers there. The
    subjects of a site's copies contain its name, so no site can deliver lines for another.
    """
    requests = (list_copy_requests(site, names), list_copy_requests(other, names))
    return SubjectRights(
        publish=(*requests[0], *list_deliveries(other), FLOW_CONTROL, _IMPORT_ANSWERS),
        subscribe=(*requests[1], *list_deliveries(site), FLOW_CONTROL, _COPY_ANSWERS),
    )


def list_copied_streams(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the streams that another site may copy: `names`, and two buckets.

    Offsets are not copied, since each site has its own receivers.
    """
    return (*names, f"KV_{CONFIG_BUCKET}", f"KV_{POSITIONS_BUCKET}")


def list_copy_requests(site: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the subjects at which a site is asked for copies of its streams."""
    return tuple(f"{site_api(site)}.CONSUMER.CREATE.{name}" for name in list_copied_streams(names))


def list_deliveries(site: str) -> tuple[str, ...]:
    """Return the subjects under which copies of a site's streams arrive, as sources or mirrors."""
    return tuple(f"{site_prefix(site)}.{kind}.*" for kind in ("S", "M"))


def _prefix_api(*calls: str) -> tuple[str, ...]:
    return tuple(f"{API}.{call}" for call in calls)
