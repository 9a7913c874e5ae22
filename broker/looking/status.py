"""How the broker is: stream, store and partitions, as a value, as JSON and as a table."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

from broker import bucket
from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.declaring.provision import consumers_of
from broker.exits import OperatorError
from broker.looking.columns import columns
from broker.offset import Offset, UnreadableOffset
from broker.sizes import format_size
from broker.subjects import consumer_name
from broker.topology import (
    CONFIG_BUCKET,
    MAX_PARTITIONS,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    STREAM,
    offset_key,
)

__all__ = ["PartitionStatus", "Status", "ask", "table"]

_NO_TIME = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition: its consumer, and the committed offset of its receiver.

    `pending` is how many messages its receiver has not committed, `ack_floor` the last sequence that it has. The last
    four are None while no receiver ever claimed the partition; `next` is the sequence that it will read next.
    """

    partition: int
    consumer: str
    ack_floor: int | None
    pending: int | None
    next: int | None = None
    epoch: int | None = None
    owner: str | None = None
    committed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The broker; sizes in bytes, times in RFC 3339, None where there is nothing yet.

    `store_limit` is the most that this user's account may store, `max_bytes` the most that the stream may hold; None
    for no limit of its own.
    """

    server: str
    version: str
    stream: str
    created: str
    messages: int
    bytes: int
    hosts: int
    first_sequence: int
    last_sequence: int
    first_time: str | None
    last_time: str | None
    max_bytes: int | None
    store_used: int
    store_limit: int | None
    partitions: tuple[PartitionStatus, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values; the keys are the field names, and stay."""
        return asdict(self)


async def ask(connection: Connection) -> Status:
    """Return how the broker is; raises `OperatorError` when it is away or not set up."""
    client = await connection.once()
    version = client.connected_server_version
    try:
        info = await connection.api(f"STREAM.INFO.{STREAM}")
        account = await connection.api("INFO")
        partitions = await _partitions(connection)
    except Rejected as error:
        raise OperatorError(
            f"no stream {STREAM} at {connection.servers}: {error.description}; set it up with `logbroker apply`"
        ) from None
    except ConnectionLost as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer: {error}"
        ) from None
    number = f"{version.major}.{version.minor}.{version.patch}"
    return _status(connection.servers, number, info, account, partitions)


def _status(
    server: str,
    version: str,
    info: dict[str, Any],
    account: dict[str, Any],
    partitions: tuple[PartitionStatus, ...],
) -> Status:
    state = info["state"]
    return Status(
        server=server,
        version=version,
        stream=STREAM,
        created=info["created"],
        messages=state["messages"],
        bytes=state["bytes"],
        hosts=state.get("num_subjects", 0),
        first_sequence=state["first_seq"],
        last_sequence=state["last_seq"],
        first_time=_time(state["first_ts"]) if state["messages"] else None,
        last_time=_time(state["last_ts"]),
        max_bytes=_limit(info["config"].get("max_bytes", -1)),
        store_used=account.get("storage", 0),
        store_limit=_limit(account.get("limits", {}).get("max_storage", -1)),
        partitions=partitions,
    )


def _time(text: str) -> str | None:
    return None if text == _NO_TIME else text


def _limit(number: int) -> int | None:
    return number if number >= 0 else None


async def _partitions(connection: Connection) -> tuple[PartitionStatus, ...]:
    entry = await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    text = entry.value.decode("ascii", "replace") if entry else "0"
    count = min(int(text), MAX_PARTITIONS) if text.isdigit() else 0
    consumers = {info["name"]: info for info in await consumers_of(connection)}
    offsets = await asyncio.gather(*(_offset(connection, number) for number in range(count)))
    return tuple(
        _partition(number, consumers.get(consumer_name(number)), offset)
        for number, offset in enumerate(offsets)
    )


async def _offset(connection: Connection, partition: int) -> Offset | None:
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    try:
        return Offset.decode(entry.value) if entry else None
    except UnreadableOffset as error:
        raise OperatorError(f"{OFFSETS_BUCKET}/{offset_key(partition)}: {error}") from None


def _partition(
    number: int, consumer: dict[str, Any] | None, offset: Offset | None
) -> PartitionStatus:
    return PartitionStatus(
        partition=number,
        consumer=consumer_name(number),
        ack_floor=consumer["ack_floor"]["stream_seq"] if consumer else None,
        pending=consumer["num_pending"] + consumer["num_ack_pending"] if consumer else None,
        next=offset.next if offset else None,
        epoch=offset.epoch if offset else None,
        owner=offset.owner if offset else None,
        committed_at=offset.committed_at or None if offset else None,
    )


def table(status: Status) -> str:
    """Return the status for people."""
    limit = "" if status.store_limit is None else f" of {format_size(status.store_limit)}"
    bound = "" if status.max_bytes is None else f" of {format_size(status.max_bytes)}"
    head = [
        ("server", f"{status.server}, nats-server {status.version}"),
        (
            "stream",
            f"{status.stream}, {_counted(status.hosts, 'host')}, created {_short(status.created)}",
        ),
        ("held", f"{_counted(status.messages, 'message')}, {format_size(status.bytes)}{bound}"),
        ("first", f"{status.first_sequence} at {_short(status.first_time)}"),
        ("last", f"{status.last_sequence} at {_short(status.last_time)}"),
        ("store", f"{format_size(status.store_used)}{limit}"),
    ]
    rows: list[tuple[str, ...]] = [
        ("partition", "ack floor", "pending", "next", "epoch", "committed", "owner")
    ]
    rows.extend(
        (
            f"p{one.partition}",
            _cell(one.ack_floor),
            _cell(one.pending),
            _cell(one.next),
            _cell(one.epoch),
            _short(one.committed_at),
            _cell(one.owner),
        )
        for one in status.partitions
    )
    return "\n".join(
        [
            *(f"{name:<7} {text}" for name, text in head),
            "",
            *columns(rows, left=(0, len(rows[0]) - 1)),
        ]
    )


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _short(time: str | None) -> str:
    return "-" if time is None else time[:19] + "Z"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
