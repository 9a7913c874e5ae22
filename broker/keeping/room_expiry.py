"""Lines that no receiver has and that are near the end of their time: looked for now and then. Says nothing itself."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from broker.client.connection import Connection
from broker.client.partitions import existing_partitions
from broker.keeping.room_asking import ask_offsets
from broker.keeping.room_dropped import iso
from broker.keeping.room_plan import Seen
from broker.keeping.room_report import Expiring
from broker.keeping.room_scan import Scan
from broker.wire.streams import STREAM
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject, partition_filter

__all__ = ["ask_expiring", "pause_of"]

_NEAR = 80  # percent of their time
_HOSTS = 10  # that are named of a partition
_LONGEST, _SHORTEST = 60.0, 0.5  # seconds between two looks
_NANOSECONDS = 1_000_000_000


def pause_of(info: Mapping[str, Any]) -> float:
    """Return the seconds between two looks: a fiftieth of the time that lines are kept, within reason."""
    return min(max(_age(info) / _NANOSECONDS / 50, _SHORTEST), _LONGEST)


def _age(info: Mapping[str, Any]) -> int:
    return int(info["config"].get("max_age", 0))


async def ask_expiring(connection: Connection, info: Mapping[str, Any], now: int) -> list[Expiring]:
    """Return the partitions whose oldest message that no receiver has is past 80 % of its time, the next to go first.

    `info` is what STREAM.INFO tells, `now` in nanoseconds since the epoch. Raises `Rejected`, `ConnectionLost`.
    """
    age = _age(info)
    near = now - age * _NEAR // 100
    if not age or not info["state"]["messages"] or _time(info["state"]["first_ts"]) > near:
        return []
    frontiers = await ask_offsets(connection, info)
    found = []
    for partition in range(await existing_partitions(connection)):
        reached = frontiers.get(partition)
        begin = reached.until if reached else int(info["state"]["first_seq"])
        stored = await _stored_from(connection, partition, begin)
        if stored is not None and stored <= near:
            hosts = await _hosts(connection, partition, begin, near)
            found.append((stored, partition, hosts))
    return [
        Expiring(partition, iso(stored), iso(stored + age), hosts)
        for stored, partition, hosts in sorted(found)
    ]


async def _stored_from(connection: Connection, partition: int, begin: int) -> int | None:
    """Return when the first message of a partition from a sequence on was stored; None where there is none."""
    body = b'{"seq":%d,"next_by_subj":"%b"}' % (begin, partition_filter(partition).encode())
    answer = await connection.call(f"DIRECT.GET.{STREAM}", body)
    stamp = (answer.headers or {}).get("Nats-Time-Stamp")
    return None if stamp is None else _time(stamp)


async def _hosts(connection: Connection, partition: int, begin: int, near: int) -> tuple[str, ...]:
    async with Scan(connection, begin, [partition_filter(partition)]) as scan:
        return _named([seen for seen in await scan.page() if seen.stored_at <= near])


def _named(page: Sequence[Seen]) -> tuple[str, ...]:
    hosts: dict[str, None] = {}
    for seen in page:
        try:
            hosts[Subject.parse(seen.subject).host] = None
        except (InvalidSubject, InvalidHost):
            continue
    return tuple(hosts)[:_HOSTS]


def _time(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * _NANOSECONDS)
