"""The status as a table for people. Decides only."""

from collections.abc import Mapping
from typing import Any

from broker.app.columns import columns
from broker.app.printable import printable
from broker.app.sizes import format_size
from broker.looking.hosts_view import silence
from broker.looking.sight import Inflow, PartitionStatus, Replica, Status
from broker.wire.streams import OFFSETS_BUCKET, offset_key

__all__ = ["table"]

_NAMED = 5
_HEADS = ("partition", "ack floor", "pending", "oldest", "next", "epoch", "committed", "owner")


def table(status: Status) -> str:
    """Return the status for people."""
    head = _head(status)
    width = max(7, *(len(name) for name, _ in head))
    rows = [_HEADS, *(_row(one, status.now) for one in status.partitions)]
    return "\n".join(
        [
            *(f"{name:<{width}} {printable(text)}" for name, text in head),
            "",
            *columns(rows, left=(0, len(_HEADS) - 1)),
            *_warnings(status),
        ]
    )


def _head(status: Status) -> list[tuple[str, str]]:
    limit = "" if status.store_limit is None else f" of {format_size(status.store_limit)}"
    bound = "" if status.max_bytes is None else f" of {format_size(status.max_bytes)}"
    return [
        ("server", f"{status.server}, nats-server {status.version}"),
        *[("node", _node(node)) for node in status.nodes],
        *(
            []
            if status.nodes
            else [("node", "not a logbroker, or one that does not tell of itself")]
        ),
        *([("cluster", _cluster(status))] if _is_of_a_cluster(status) else []),
        (
            "stream",
            f"{status.stream}, {_counted(status.hosts or 0, 'host')}, created {_short(status.created)}",
        ),
        *[("site", _inflow(one)) for one in status.inflows],
        ("held", f"{_counted(status.messages, 'message')}, {format_size(status.bytes)}{bound}"),
        ("first", f"{status.first_sequence} at {_short(status.first_time)}"),
        ("last", f"{status.last_sequence} at {_short(status.last_time)}"),
        ("store", f"{format_size(status.store_used)}{limit}"),
        *_left_partitions(status),
        *[("pause", f"{one.hosts}: {one}") for one in status.pauses],
    ]


def _left_partitions(status: Status) -> list[tuple[str, str]]:
    """Return the line about partitions that hosts have left, where there are any."""
    current, existing = status.current_partitions, len(status.partitions)
    if not 0 < current < existing:
        return []
    return [
        (
            "hosts",
            f"are spread over {current} of {existing} partitions, the others hold older lines",
        )
    ]


def _node(node: Mapping[str, Any]) -> str:
    """Return what a node tells; it may be of another version and tell other things."""
    told = [str(node.get("name", "?"))]
    if version := node.get("version"):
        commit = f" [{str(node['commit'])[:7]}]" if node.get("commit") else ""
        told.append(f"nats-server {version}{commit}")
    if started := node.get("started"):
        told.append(f"since {_short(str(started))}")
    if isinstance(free := node.get("free"), int):
        told.append(f"{format_size(free)} of its disk free")
    if node.get("encrypted"):
        told.append("encrypted")
    if "credentials" in node:
        number = node["credentials"]
        told.append("OPEN, no credentials" if number is None else f"{number} credentials")
    if node.get("frozen"):
        told.append(f"FROZEN: {node['frozen']}")
    return ", ".join(told)


def _inflow(inflow: Inflow) -> str:
    heard = (
        "never heard"
        if inflow.seen_seconds is None
        else f"heard {silence(inflow.seen_seconds)} ago"
    )
    return f"{inflow.site or 'this one'}: {inflow.lag} behind, {heard}"


def _is_of_a_cluster(status: Status) -> bool:
    # a server on its own that has to do with other sites tells its own name as that of a cluster
    is_alone = [one.name for one in status.replicas] == [status.cluster]
    return status.wanted_replicas > 1 or (bool(status.cluster) and not is_alone)


def _cluster(status: Status) -> str:
    name = status.cluster or "no name"
    if not any(replica.leader for replica in status.replicas):
        return f"{name}, the stream has NO LEADER"
    return f"{name}: {', '.join(map(_replica, status.replicas))}"


def _replica(replica: Replica) -> str:
    if replica.leader:
        return f"{replica.name} leads"
    if replica.offline:
        return f"{replica.name} OFFLINE since {silence(replica.seen_seconds)}"
    return f"{replica.name} {'is current' if replica.current else f'is {replica.lag} behind'}"


def _row(one: PartitionStatus, now: str) -> tuple[str, ...]:
    age = one.age(now) if now else None
    return (
        f"p{one.partition}",
        _cell(one.ack_floor),
        _cell(one.pending),
        "-" if age is None else silence(age),
        _cell(one.next),
        _cell(one.epoch),
        _short(one.committed_at),
        "UNREADABLE" if one.error else _cell(one.owner),
    )


def _warnings(status: Status) -> list[str]:
    found: list[str] = []
    strays = status.strays
    if strays is not None and strays.messages:
        names = ", ".join(strays.subjects[:_NAMED])
        rest = strays.subject_count - _NAMED
        more = f" and {rest} more" if rest > 0 else ""
        found.append(
            f"{_counted(strays.messages, 'message')} on subjects that no receiver reads: {names}{more}"
        )
    found += [
        f"partition {one.partition}: the entry {offset_key(one.partition)} of bucket {OFFSETS_BUCKET} cannot be read, "
        f"so nobody can receive it: {one.error}; `logreceiver offsets set` writes it anew"
        for one in status.partitions
        if one.error
    ]
    if status.lost_messages:
        found.append(
            f"{_counted(status.lost_messages, 'message')} of the store were damaged and are lost"
        )
    if not status.current_partitions:
        found.append("no number of partitions is set up: `logbroker apply` does that")
    return ["", *(f"warning: {printable(text)}" for text in found)] if found else []


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _short(time: str | None) -> str:
    return "-" if time is None else time[:19] + "Z"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
