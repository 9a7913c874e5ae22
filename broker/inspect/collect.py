"""Ask a broker, its servers and its receivers for all that the status document holds."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from typing import Any, TypeVar

from broker.inspect.message import json_object
from broker.inspect.servers import collect_reports
from broker.inspect.status import (
    BrokerStatus,
    PartitionStatus,
    SiteStatus,
    StreamStatus,
)
from broker.inspect.streams import read_interval_in_force, read_known_layout, read_pauses
from broker.topology import find_mirrored_site
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.timestamps import SECOND, parse_time
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, retry_until_answered
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.find import find_message
from nats_logship.client.owners import ask_owner
from nats_logship.client.stream_state import count_by_subject
from nats_logship.client.tables import collect_tables
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from nats_logship.wire.subjects import consumer_name, parse_subject, partition_filter

Answer = TypeVar("Answer")
_PATIENCE = 10.0  # seconds in which `observe` ends, and
_ASK_AGAIN = 7.0  # in which it repeats its questions; the last ones end within the rest


async def attempt(
    connection: Connection, asked: Awaitable[Answer], seconds: float
) -> tuple[Answer | None, str]:
    """Return the answer, or None and why the broker gave none within `seconds`.

    Raises `ConfigurationError`, which is an error of our settings.
    """
    try:
        async with asyncio.timeout(seconds):
            return await asked, ""
    except ConfigurationError:
        raise
    except TimeoutError:
        return None, connection.away or f"no answer within {seconds:g} s"
    except Rejected as error:
        return None, f"the broker refuses: {error.description}"
    except (OperatorError, ConnectionLost) as error:
        return None, str(error)


async def observe(connection: Connection) -> tuple[BrokerStatus | None, str]:
    """Return the status within ten seconds, or None and why there is none.

    Raises `ConfigurationError`, which is an error of our settings.
    """

    async def ask() -> BrokerStatus:
        await connection.connect()  # do not wait for a broker that is away
        return await retry_until_answered(connection, collect_status, _ASK_AGAIN)

    return await attempt(connection, ask(), _PATIENCE)


async def collect_status(connection: Connection) -> BrokerStatus:
    """Return the complete status; raises `Rejected`, `ConnectionLost`."""
    found = await collect_brief_status(connection)
    # the number of servers of a cluster is not known here
    expected = 0 if (await connection.client()).is_clustered else 1
    subjects, nodes, pauses, partitions, tables = await asyncio.gather(
        count_by_subject(connection, [one.name for one in found.streams]),
        collect_reports(connection, expected),
        read_pauses(connection),
        _add_receivers(connection, found),
        collect_tables(connection, [one.name for one in found.streams]),
    )
    known = [one for name in subjects if (one := parse_subject(name))]
    paused = Counter(one.partition for one in known if any(p.covers(one.host) for p in pauses))
    foreign = Counter[int]()
    # a mirror has no subjects, so partitions that hosts of its site have left are not known here
    if found.current_partitions and not any(one.is_mirror for one in found.streams):
        for one in known:
            foreign[one.partition] += subjects[str(one)]
        for partition in found.partitions:
            del foreign[partition.partition]
    return found.model_copy(
        update={
            "hosts": len({one.host for one in known}),
            "nodes": nodes,
            "pauses": pauses,
            "paused_hosts": paused,
            "foreign_messages": foreign,
            "partitions": partitions,
            "tables": tables,
        }
    )


async def collect_brief_status(connection: Connection) -> BrokerStatus:
    """Return what costs the broker little: neither hosts nor the reports of servers and receivers.

    Raises `Rejected`, `ConnectionLost`.
    """
    version = (await connection.client()).connected_server_version
    layout = await read_known_layout(connection)
    clock = asyncio.get_running_loop().time
    began = clock()
    account = await connection.api("INFO")
    took = clock() - began
    infos = await asyncio.gather(*(connection.api(f"STREAM.INFO.{name}") for name in layout.names))
    now = infos[0]["ts"]
    # without a number of partitions the broker was not set up by us, or has lost its buckets
    existing = (layout.partitions_in(info["config"]) for info in infos if layout.partitions)
    partitions = (
        _collect_partition(connection, n, layout.stream_of(n), now)
        for n in sorted(chain(*existing))
    )
    return BrokerStatus(
        server=connection.servers,
        version=f"{version.major}.{version.minor}.{version.patch}",
        now=now,
        answer_seconds=took,
        store_used=account.get("storage", 0),
        store_limit=account.get("limits", {}).get("max_storage", -1),
        current_partitions=layout.partitions,
        interval_seconds=await read_interval_in_force(connection, parse_time(now)),
        streams=tuple(map(_read_stream, infos)),
        partitions=tuple(await asyncio.gather(*partitions)),
    )


def _read_stream(info: Mapping[str, Any]) -> StreamStatus:
    copies = filter(None, [mirror := info.get("mirror"), *(info.get("sources") or ())])
    sites = tuple(map(_read_site, copies))
    return StreamStatus.model_validate({**info, "sites": sites, "is_mirror": bool(mirror)})


def _read_site(copy: Mapping[str, Any]) -> SiteStatus:
    active = copy.get("active", -1)
    return SiteStatus(
        name=find_mirrored_site({"mirror": copy}) or copy["name"],
        lag=copy.get("lag", 0),
        contact_seconds=active / SECOND if active >= 0 else None,
        error=(copy.get("error") or {}).get("description", ""),
    )


async def _collect_partition(
    connection: Connection, number: int, stream: str, now: str
) -> PartitionStatus:
    """Return the status of a partition; `now` is the broker's clock.

    Only its own consumer is asked: a list waits for consumers whose servers are away.
    """
    known: dict[str, Any] = {"partition": number, "stream": stream}
    first = 1
    with suppress(Rejected, ConnectionLost):
        known["behind"], first = await _count_behind(connection, number, stream)
    try:
        if entry := await bucket.read(connection, OFFSETS_BUCKET, offset_key(number)):
            offset, known["changed_at"] = Offset.decode(entry.value), entry.time
            known, first = asdict(offset) | {"moved": offset.is_moved} | known, offset.next
    except UnreadableOffset as error:  # the other partitions are shown as usual
        known["error"] = str(error)
    if known.get("behind"):
        asked = {"seq": max(1, first), "next_by_subj": partition_filter(number)}
        with suppress(Rejected, ConnectionLost):  # the stream may have lost its leader by now
            if oldest := await find_message(connection, stream, asked):
                age = (parse_time(now) - oldest.stored_at) / SECOND
                known["behind_seconds"] = max(0.0, age)
            else:  # the consumer lags behind the offset, or does not exist yet
                known["behind"] = 0
    if known.get("behind") == 0:
        known["behind_seconds"] = 0.0
    return PartitionStatus.model_validate(known)


async def _count_behind(connection: Connection, number: int, stream: str) -> tuple[int, int]:
    """Return how many messages of a partition are not committed, and the first sequence of these.

    All messages count while no receiver has created the consumer.
    """
    try:
        consumer = await connection.api(f"CONSUMER.INFO.{stream}.{consumer_name(number)}")
    except Rejected as error:
        if error.error != ErrorCode.CONSUMER_NOT_FOUND:
            raise
        counts = await count_by_subject(connection, [stream], partition_filter(number))
        return sum(counts.values()), 1
    waiting: int = consumer["num_pending"] + consumer["num_ack_pending"]
    return waiting, consumer["ack_floor"]["stream_seq"] + 1


async def _add_receivers(
    connection: Connection, status: BrokerStatus
) -> tuple[PartitionStatus, ...]:
    """Return the partitions with the answers of their receivers; each receiver is asked once."""
    names = {one.presence for one in status.partitions if not one.released and not one.moved}
    asked = {name: _ask_receiver(connection, name) for name in names - {""}}
    answers = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
    created, now = {one.name: one.created for one in status.streams}, parse_time(status.now)
    found = []
    for one in status.partitions:
        receiver = _describe_receiver(one, answers.get(one.presence))
        if receiver["running"] is False:
            since = parse_time(one.changed_at or created[one.stream])
            receiver["missing_seconds"] = max(0.0, (now - since) / SECOND)
        found.append(one.model_copy(update={"receiver": receiver}))
    return tuple(found)


async def _ask_receiver(connection: Connection, presence: str) -> dict[str, Any] | None:
    """Return the answer of a receiver, with `running`; None if this user may not ask it."""
    is_running, answer = await ask_owner(connection, presence)
    return None if is_running is None else {**(json_object(answer) or {}), "running": is_running}


def _describe_receiver(one: PartitionStatus, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the part of a receiver's answer that is about this partition.

    A receiver may answer anything; we say ourselves whether it runs, and for how long it did not.
    """
    if one.error:
        return {"running": None, "error": one.error}
    if one.owner is None or one.released or one.moved:
        return {"running": False, "moved": one.moved, "released": one.released}
    if not one.presence or answer is None:
        return {"running": None}
    own = answer.get(str(one.partition))
    own = dict(own) if isinstance(own, dict) else {}
    own.pop("missing_seconds", None)
    return {**own, "running": answer["running"]}
