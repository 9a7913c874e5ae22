"""Asks a broker for its status, and for single messages. Changes nothing."""

import asyncio
import base64
import ssl
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from broker.app.exits import ConfigurationError, OperatorError
from broker.client import bucket
from broker.client.config import (
    current_partitions,
    current_pauses,
    existing_partitions,
    read_streams,
)
from broker.client.connection import (
    Connection,
    ConnectionLost,
    RawMessage,
    Rejected,
    until_answered,
)
from broker.inspect.checks import Check, Observed
from broker.inspect.message import StoredMessage, nanoseconds, read_message
from broker.inspect.status import BrokerStatus, PartitionStatus, StreamStatus, hosts_in, unread_in
from broker.report import SUBJECT, NodeReport
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key, stream_names, stream_of
from broker.wire.subjects import consumer_name, host_filter, partition_filter

__all__ = [
    "brief_status",
    "find_message",
    "full_status",
    "get_message",
    "last_of_host",
    "node_reports",
    "observe",
    "stream_named",
    "streams_of",
    "subjects_in",
]

_AT_ONCE = 64  # partitions that are asked for at a time
_FIRST_REPORT, _NEXT_REPORT = 2.0, 0.3  # seconds
_NOBODY = "503"
_NO_MESSAGE_FOUND = 10037
_SECOND = 1_000_000_000
_PATIENCE = 10.0  # seconds for all that is observed, and
_ASK_AGAIN = 7.0  # in which a question is asked again; the last one ends within the rest


async def streams_of(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams that hold the lines; raises `Rejected`, `ConnectionLost` or `ConfigurationError`."""
    # a stream without our buckets is somebody else's, or half made
    is_ours = await current_partitions(connection) > 0
    return stream_names(await read_streams(connection) if is_ours else 1)


async def stream_named(connection: Connection, name: str | None) -> str:
    """Return the stream that a person means: the only one where none is named; raises `OperatorError` for none of them."""
    names = await streams_of(connection)
    if name not in names and (name or len(names) > 1):
        raise OperatorError(f"--stream is one of {', '.join(names)}")
    return name or names[0]


async def full_status(connection: Connection) -> BrokerStatus:
    """Return all that the broker and its servers report; raises `Rejected` or `ConnectionLost`."""
    streams = await streams_of(connection)
    # the number of servers of a cluster is not known here
    expected = 0 if (await connection.client()).is_clustered else 1
    found, subjects, pauses = await asyncio.gather(
        brief_status(connection), subjects_in(connection, streams), current_pauses(connection)
    )
    return replace(
        found,
        hosts=hosts_in(subjects),
        unread=unread_in(subjects, len(found.partitions)) if found.partitions else None,
        nodes=await node_reports(connection, expected),
        pauses=pauses,
    )


async def brief_status(connection: Connection) -> BrokerStatus:
    """Return what is cheap to ask: neither subjects nor the reports of the servers."""
    version = (await connection.client()).connected_server_version
    names = await streams_of(connection)
    infos, account, current, count = await asyncio.gather(
        asyncio.gather(*(connection.api(f"STREAM.INFO.{name}") for name in names)),
        connection.api("INFO"),
        current_partitions(connection),
        existing_partitions(connection),
    )
    limit = account.get("limits", {}).get("max_storage", -1)
    now, gate = infos[0].get("ts", ""), asyncio.Semaphore(_AT_ONCE)

    async def partition(number: int) -> PartitionStatus:
        async with gate:
            return await _partition(connection, number, stream_of(number, len(names)), now)

    return BrokerStatus(
        server=connection.servers,
        version=f"{version.major}.{version.minor}.{version.patch}",
        now=now,
        store_used=account.get("storage", 0),
        store_limit=limit if limit >= 0 else None,
        current_partitions=current,
        streams=tuple(map(StreamStatus.of, infos)),
        partitions=tuple(await asyncio.gather(*map(partition, range(count)))),
    )


async def _partition(connection: Connection, number: int, stream: str, now: str) -> PartitionStatus:
    """Return a partition's status; its consumer is asked for alone: a list would wait for others' whose server is away."""
    consumer = None
    with suppress(Rejected, ConnectionLost):
        consumer = await connection.api(f"CONSUMER.INFO.{stream}.{consumer_name(number)}")
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(number))
    offset: Offset | UnreadableOffset | None
    try:
        offset = Offset.decode(entry.value) if entry else None
    except UnreadableOffset as error:
        offset = error  # of one partition: the others are shown as usual
    found = PartitionStatus.of(number, stream, consumer, offset)
    if found.first_behind is None:
        return replace(found, behind_seconds=0.0 if found.behind == 0 else None)
    return replace(found, behind_seconds=await _age(connection, found, now))


async def _age(connection: Connection, partition: PartitionStatus, now: str) -> float | None:
    """Return the age of the oldest message that is not committed; a replica that lags may answer."""
    filter_ = partition_filter(partition.partition)
    body = f'{{"seq": {max(1, partition.first_behind or 0)}, "next_by_subj": "{filter_}"}}'
    try:
        answer = await connection.call(f"DIRECT.GET.{partition.stream}", body.encode())
        stored = nanoseconds((answer.headers or {}).get("Nats-Time-Stamp", ""))
    except (Rejected, ValueError):
        return None  # a stream without allow_direct, or no such message any more
    return max(0.0, (nanoseconds(now) - stored) / _SECOND)


async def subjects_in(connection: Connection, streams: Sequence[str]) -> dict[str, int]:
    """Return how many messages there are on each subject; raises `Rejected` or `ConnectionLost`."""
    found: dict[str, int] = {}
    for stream in streams:
        own: dict[str, int] = {}
        while True:
            body = {"subjects_filter": ">", "offset": len(own)}
            info = await connection.api(f"STREAM.INFO.{stream}", body, patience=30)
            before = len(own)
            own.update(info["state"].get("subjects") or {})
            # a page may bring nothing new: subjects that come and go meanwhile move the others
            if len(own) == before or len(own) >= info.get("total", 0):
                break
        found |= own
    return found


async def node_reports(connection: Connection, expected: int = 0) -> tuple[NodeReport, ...]:
    """Return the reports of the logbrokers by server name, `expected` of them where that is known; none of a bare nats-server.

    Who may not ask gets none. Raises `ConnectionLost`.
    """
    found: list[NodeReport] = []
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    await connection.client()
    inbox = connection.new_inbox()
    subscription = await connection.tap(inbox, arrived.put_nowait)
    try:
        await connection.publish(SUBJECT, reply=inbox)
        while not expected or len(found) < expected:
            async with asyncio.timeout(_NEXT_REPORT if found else _FIRST_REPORT):
                message = await arrived.get()
            if (message.headers or {}).get("Status") == _NOBODY:
                break
            with suppress(ValidationError):  # what anybody else answered
                found.append(NodeReport.model_validate_json(message.data))
    except TimeoutError:
        pass  # a logbroker that has not answered by now is not there, or is stuck; checks of the server tell which
    finally:
        with suppress(ConnectionLost):  # which would take the place of a cancellation
            await connection.guard(subscription.unsubscribe(), _FIRST_REPORT)
    return tuple(sorted(found, key=lambda report: report.name))


async def observe(connection: Connection, checks: Collection[Check], now: datetime) -> Observed:
    """Return what was learnt within ten seconds; a broker that is away, or refuses, is no error.

    Raises `ConfigurationError` for a setting of our own.
    """
    seen = Observed(connection.servers, now)
    try:
        async with asyncio.timeout(_PATIENCE):
            seen = await _reach(connection, seen)
            if set(checks) <= {Check.CONNECTION}:
                return seen
            return replace(seen, status=await until_answered(connection, full_status, _ASK_AGAIN))
    except ConfigurationError:
        raise  # it says nothing of the broker
    except TimeoutError:
        return replace(seen, trouble=f"no answer within {_PATIENCE:g} s")
    except Rejected as error:
        return replace(seen, trouble=f"the broker refuses: {error.description}")
    except (OperatorError, ConnectionLost) as error:
        return replace(seen, trouble=str(error))


async def _reach(connection: Connection, seen: Observed) -> Observed:
    clock = asyncio.get_running_loop().time
    began = clock()
    client = await connection.once()
    await connection.guard(client.flush(), 5.0)
    end = client.certificate.get("notAfter")
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC) if end else None
    return replace(
        seen, server=client.address, connect_seconds=clock() - began, certificate_end=ends
    )


async def get_message(connection: Connection, stream: str, sequence: int | None) -> StoredMessage:
    """Return the message at a sequence of a stream, None meaning the last one; raises `OperatorError` where there is none."""
    state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    wanted = state["last_seq"] if sequence is None else sequence
    if (found := await find_message(connection, stream, {"seq": wanted})) is None:
        holds = f"{state['first_seq']} to {state['last_seq']}" if state["messages"] else "none"
        raise OperatorError(f"no message {wanted}: stream {stream} holds {holds}")
    return found


async def last_of_host(connection: Connection, streams: Sequence[str], host: str) -> StoredMessage:
    """Return the message of a host that was stored last, in whichever stream and partition; raises `OperatorError`."""
    asked = {"last_by_subj": host_filter(host)}
    found = [await find_message(connection, stream, asked) for stream in streams]
    if not any(found):
        raise OperatorError(f"no message of host {host} is in {', '.join(streams)}")
    return max(filter(None, found), key=lambda message: message.stored_at)


async def find_message(
    connection: Connection, stream: str, asked: Mapping[str, Any]
) -> StoredMessage | None:
    """Return a message of a stream, None where there is none; raises `Rejected` or `ConnectionLost`.

    The stream's leader is asked: a replica may lag behind. `asked` is `seq`, `last_by_subj`, or `seq` and `next_by_subj`.
    """
    try:
        message = (await connection.api(f"STREAM.MSG.GET.{stream}", asked))["message"]
    except Rejected as error:
        if error.error == _NO_MESSAGE_FOUND:
            return None
        raise
    head = base64.b64decode(message.get("hdrs", ""))
    headers = RawMessage("", "", head, b"").headers or {}
    payload = base64.b64decode(message.get("data", ""))
    stored = nanoseconds(message["time"])
    return read_message(message["subject"], message["seq"], stored, headers, payload)
