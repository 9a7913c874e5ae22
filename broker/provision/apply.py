"""Brings a broker to what is declared: asks what is there, has it planned, and carries the plan out."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.untrusted import printable
from broker.client import bucket
from broker.client.answer import is_certain
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.provision.plan import Actual, plan
from broker.provision.steps import Loss, ResourceKind, Step, losses_in, without
from broker.topology import Topology, mirrored_site
from broker.wire.descent import is_being_restored
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    STREAMS_KEY,
    streams_among,
    streams_in,
)

__all__ = [
    "STREAM_NOT_FOUND",
    "Refused",
    "apply",
    "carry_out",
    "cautions",
    "consumers_of",
    "look",
    "look_at_partitions",
    "losses_of",
    "refuse_half",
]

STREAM_NOT_FOUND = 10059
"""The error of JetStream for a stream that is not there."""
_WAYS = {  # what to do about an answer that does not say it
    10074: "; run three servers as a cluster (--cluster), or keep --replicas 1",
    10005: "; fewer servers than --replicas are there",
    10047: "; the store has no room for so much: lower --max-bytes, or raise --max-store",
    10055: "; leave --mirror out where it was promoted",
    10026: "; raise max_consumers of the stream (nats stream edit): each partition needs a consumer",
}
_AT_ONCE = 64  # requests under way; thousands of partitions would otherwise wait for thousands of round trips
_PATIENCE = 60.0  # seconds for a step: nats-server takes those under way one by one, and syncs each to a disk that may be slow
logger = logging.getLogger(__name__)


class Refused(ConfigurationError):
    """The server does not take a configuration; of a cluster one may that comes up later, or leads by then."""


async def apply(
    connection: Connection, desired: Topology, patience: float = _PATIENCE
) -> tuple[Step, ...]:
    """Bring the broker to what is declared and return what was done.

    Raises `ConfigurationError` for a refusal, and `OperatorError` where the server failed, by its disk or for a while.
    Nobody can be asked here, so whatever deletes stored lines is held back and said. Each step may take `patience` seconds.
    """
    for words in cautions(desired):
        logger.warning("%s", words)
    actual = await look(connection, desired)
    if half := sorted(n for n, config in actual.streams.items() if is_being_restored(config)):
        logger.warning(
            "%s: a part of a backup, closed to everybody: wait for `logbroker restore`, or run it again",
            ", ".join(half),
        )
    made = plan(desired, actual)
    losses = await losses_of(connection, made)
    for loss in losses:
        logger.warning(
            "%s keeps its %s, since the change %s; `logbroker apply` with the same settings asks, and does it",
            *(loss.step.name, " and ".join(loss.fields), loss.reason),
        )
    safe = without(made, losses)
    await carry_out(connection, safe, patience)
    return safe


def cautions(topology: Topology) -> list[str]:
    """Return which promises a declaration breaks that we keep otherwise: allowed, and logged."""
    found = []
    if topology.discard == "old":
        found.append(
            "discard = old: a full stream lets its oldest lines go, received or not; receivers report the gaps"
        )
    if topology.replicas in (2, 4):
        fewer = topology.replicas - 1
        found.append(f"replicas = {fewer + 1}: no more servers may fail than with {fewer}")
    return found


async def losses_of(connection: Connection, steps: Iterable[Step]) -> list[Loss]:
    """Return what the steps of a plan would delete now; raises `Rejected`, `ConnectionLost`."""
    found: list[Loss] = []
    for step in steps:
        if step.kind is ResourceKind.STREAM and step.changes:
            found += losses_in(step, await connection.api(f"STREAM.INFO.{step.name}"))
    return found


def refuse_half(streams: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `ConfigurationError` where one of the streams, configurations by name, is being restored: a part would be opened."""
    if half := sorted(name for name, config in streams.items() if is_being_restored(config)):
        raise ConfigurationError(
            f"not all of a backup is back ({', '.join(half)}): wait for `logbroker restore`, or run it again; nothing was changed"
        )


async def look(connection: Connection, desired: Topology) -> Actual:
    """Return what is there of that which is declared, and what the partitions' number would touch.

    Where there are streams already, their number counts, and not the one that is declared. Raises `Rejected`, `ConnectionLost`.
    """
    entry, count = await _stream_count(connection)
    if count is not None:
        desired = replace(desired, stream_count=count)
    names = [config["name"] for config in desired.streams()]
    found = await asyncio.gather(*(_stream(connection, name) for name in names))
    streams = {name: info for name, info in zip(names, found, strict=True) if info is not None}
    offsets = streams.get(f"KV_{OFFSETS_BUCKET}")
    there = [name for name in desired.names if name in streams]
    consumers = await asyncio.gather(*(consumers_of(connection, name) for name in there))
    has_config = f"KV_{CONFIG_BUCKET}" in streams
    return Actual(
        streams={name: info["config"] for name, info in streams.items()},
        consumers={info["name"]: info["config"] for infos in consumers for info in infos},
        partitions=await _entry(connection, PARTITIONS_KEY) if has_config else None,
        messages=sum(streams[name]["state"]["messages"] for name in there),
        offsets=offsets["state"].get("num_subjects", 0) if offsets else 0,
        streams_entry=entry,
        stream_count=count,
    )


async def look_at_partitions(connection: Connection) -> Actual:
    """Return what is there; raises `OperatorError` where the number of partitions cannot be changed here, else as `look`."""
    actual = await look(connection, Topology())
    refuse_half(actual.streams)
    expected = Topology(stream_count=len(actual.names)).streams()
    if missing := {config["name"] for config in expected} - actual.streams.keys():
        raise OperatorError(
            f"{', '.join(sorted(missing))} is not there; set it up with `logbroker apply`"
        )
    name = actual.names[0]
    if site := mirrored_site(actual.streams[name]):
        raise OperatorError(
            f"{name} here is a copy of site {site}'s, and so is the number of partitions: run `logbroker partitions` there"
        )
    return actual


async def _stream_count(connection: Connection) -> tuple[str | None, int | None]:
    """Return the entry of the number of streams, and that number: by the entry, or else by the streams that are there."""
    names = frozenset(await connection.pages("STREAM.NAMES", "streams"))
    has_config = f"KV_{CONFIG_BUCKET}" in names
    entry = await _entry(connection, STREAMS_KEY) if has_config else None
    if (number := streams_in(entry)) is not None:
        return entry, number
    count = streams_among(names)
    if count > 1 and has_config:  # a replica that lags may have no entry yet
        with suppress(Rejected):  # the bucket is another site's, and takes no question of ours
            await bucket.confirm(connection, CONFIG_BUCKET, STREAMS_KEY, None)
    return entry, count or None


async def consumers_of(connection: Connection, stream: str) -> list[dict[str, Any]]:
    """Return what the server tells of every consumer of a stream; raises as `pages`."""
    return await connection.pages(f"CONSUMER.LIST.{stream}", "consumers")


async def _stream(connection: Connection, name: str) -> dict[str, Any] | None:
    try:
        info = await connection.api(f"STREAM.INFO.{name}")
    except Rejected as error:
        if error.error == STREAM_NOT_FOUND:
            return None
        raise
    if not is_certain(info):  # a stream that seems empty would let the number of partitions change
        raise ConnectionLost(f"stream {name} has no leader that is sure of it")
    return info


async def _entry(connection: Connection, key: str) -> str | None:
    entry = await bucket.read(connection, CONFIG_BUCKET, key)
    return None if entry is None else entry.value.decode("utf-8", "replace")


async def carry_out(
    connection: Connection, steps: Sequence[Step], patience: float = _PATIENCE
) -> None:
    """Take the steps of a plan, each for at most `patience` seconds: one stage after the other, at once within a stage."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(step: Step) -> None:
        async with gate:
            await _take(step, connection, patience)

    for _, stage in groupby(sorted(steps, key=_stage), _stage):
        await asyncio.gather(*map(one, stage))


def _stage(step: Step) -> int:
    """Return when a step is taken: the number of streams, which needs its bucket, comes before all streams.

    So a start that dies among them is completed by the next one, with the same number. The number of partitions comes last:
    shippers and receivers wait for that entry and then rely on the rest.
    """
    match step.kind, step.name:
        case ResourceKind.STREAM, name if name == f"KV_{CONFIG_BUCKET}":
            return 0
        case ResourceKind.ENTRY, name if name.endswith(f"/{STREAMS_KEY}"):
            return 1
        case ResourceKind.STREAM, _:
            return 2
        case ResourceKind.CONSUMER, _:
            return 3
        case _:
            return 4


async def _take(step: Step, connection: Connection, patience: float) -> None:
    what = f"{step.action} {step.kind.value} {step.name}"
    try:
        match step.kind:
            case ResourceKind.ENTRY:
                await _write_entry(connection, step)
            case ResourceKind.STREAM:
                call = f"STREAM.{step.action.upper()}.{step.name}"
                await connection.api(call, step.config, patience)
            case ResourceKind.CONSUMER:
                body = {"stream_name": step.stream, "config": step.config, "action": step.action}
                call = f"CONSUMER.CREATE.{step.stream}.{step.name}"
                await connection.api(call, body, patience)
    except bucket.Conflict:
        raise OperatorError(
            f"{step.name} was changed by somebody else meanwhile; try again"
        ) from None
    except Rejected as error:
        if error.is_of_server:
            raise OperatorError(
                f"{connection.servers} failed to {what}: {error.description}; check the disk of its store and its log, "
                "then try again"
            ) from None
        raise Refused(
            f"{connection.servers} refuses to {what}: {error.description}{_WAYS.get(error.error, '')}"
        ) from None


async def _write_entry(connection: Connection, step: Step) -> None:
    """Write the entry, if it is still as the plan found it."""
    key = step.name.rpartition("/")[2]
    entry = await bucket.read(connection, CONFIG_BUCKET, key)
    found = None if entry is None else printable(entry.value.decode("utf-8", "replace"))
    if found != (step.changes[0].before if step.changes else None):
        raise bucket.Conflict(f"{step.name} is no longer as it was")
    revision = entry.revision if entry else 0
    await bucket.write(connection, CONFIG_BUCKET, key, step.config["value"].encode(), revision)
