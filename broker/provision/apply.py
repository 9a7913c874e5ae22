"""Brings a broker to what is declared: asks what is there, has it planned, and carries the plan out.

In a cluster all brokers try, and may at once. A stream that all servers hold is limited by the smallest of them: each server
keeps a KV entry with how much it can hold.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.untrusted import printable
from broker.client import bucket
from broker.client.answer import ConnectionLost, Rejected, is_certain
from broker.client.config import read_streams
from broker.client.connection import Connection
from broker.provision.plan import Actual, Step, deleted_by, describe, plan
from broker.topology import Topology, mirrored_site
from broker.wire.descent import is_being_restored
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    STREAMS_KEY,
    stream_names,
    streams_among,
    streams_in,
)

STREAM_NOT_FOUND = 10059
"""JetStream's error for a stream that is not there."""
_AT_ONCE = 64  # requests under way; thousands of partitions would otherwise wait for thousands of round trips
_PATIENCE = 60.0  # seconds for a step: nats-server takes those under way one by one, and syncs each to a disk that may be slow
_CAPACITY = "capacity"  # with the server's name: the key of what it can hold
_PAUSE, _SHORT = 0.5, 1.0  # seconds between attempts in a cluster, and for an answer
_STEP = 5.0  # seconds for a change: without a leader nobody answers, and what was done meanwhile is there at the next attempt
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
    actual = await look(connection, desired)
    if half := sorted(n for n, config in actual.streams.items() if is_being_restored(config)):
        logger.warning(
            "%s: a part of a backup, closed to everybody: wait for `logbroker restore`, or run it again",
            ", ".join(half),
        )
    made = await with_deletions(connection, plan(desired, actual))
    for step in made:
        if step.deletes:
            logger.warning(
                "%s stays as it is, since the change %s; `logbroker apply` with the same settings asks, and does it",
                *(step.name, step.deletes),
            )
    safe = tuple(step for step in made if not step.deletes)
    await carry_out(connection, safe, patience)
    return safe


async def with_deletions(connection: Connection, steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps of a plan with what they would delete now; raises `Rejected`, `ConnectionLost`."""
    return tuple(
        [
            replace(one, deletes=deleted_by(one, await connection.api(f"STREAM.INFO.{one.name}")))
            if one.kind == "stream" and one.changes
            else one
            for one in steps
        ]
    )


def refuse_half(streams: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `ConfigurationError` where one of the streams, configurations by name, is being restored: a part would be opened."""
    if half := sorted(name for name, config in streams.items() if is_being_restored(config)):
        raise ConfigurationError(
            f"not all of a backup is back ({', '.join(half)}): wait for `logbroker restore`, or run it again; nothing was changed"
        )


async def look(connection: Connection, desired: Topology) -> Actual:
    """Return what is there of what is declared, whatever number of streams that is, and what the number of partitions would touch."""
    names = frozenset(await connection.pages("STREAM.NAMES", "streams"))
    partitions = streams_entry = None
    if f"KV_{CONFIG_BUCKET}" in names:
        partitions, streams_entry = [
            (await _entry(connection, key))[0] for key in (PARTITIONS_KEY, STREAMS_KEY)
        ]
    count = streams_in(streams_entry) or await _count_streams(connection, names) or None
    desired = replace(desired, stream_count=count or desired.stream_count)
    declared = [config["name"] for config in desired.streams() if config["name"] in names]
    infos = await asyncio.gather(*(_stream(connection, name) for name in declared))
    streams = dict(zip(declared, infos, strict=True))
    there = [name for name in desired.names if name in streams]
    consumers = await asyncio.gather(*(consumers_of(connection, name) for name in there))
    offsets = streams.get(f"KV_{OFFSETS_BUCKET}")
    return Actual(
        streams={name: info["config"] for name, info in streams.items()},
        consumers={info["name"]: info["config"] for of_one in consumers for info in of_one},
        partitions=partitions,
        messages=sum(streams[name]["state"]["messages"] for name in there),
        offsets=offsets["state"].get("num_subjects", 0) if offsets else 0,
        streams_entry=streams_entry,
        stream_count=count,
    )


async def _count_streams(connection: Connection, names: frozenset[str]) -> int:
    """Return how many streams of partitions there are, where no entry says so."""
    count = streams_among(names)
    if count > 1 and f"KV_{CONFIG_BUCKET}" in names:  # a replica that lags may have no entry yet
        with suppress(Rejected):  # the bucket is another site's, and takes no question of ours
            await bucket.confirm(connection, CONFIG_BUCKET, STREAMS_KEY, None)
    return count


async def _stream(connection: Connection, name: str) -> Mapping[str, Any]:
    info = await connection.api(f"STREAM.INFO.{name}")
    # a stream that seems empty would let the number of partitions change
    if not is_certain(info):
        raise ConnectionLost(f"stream {name} has no leader that is sure of it")
    return info


async def look_at_partitions(connection: Connection) -> Actual:
    """Return what is there; raises `OperatorError` where the number of partitions cannot be changed here, else as `look`."""
    actual = await look(connection, Topology())
    refuse_half(actual.streams)
    expected = Topology(stream_count=len(actual.names)).streams()
    missing = sorted({config["name"] for config in expected} - actual.streams.keys())
    if missing or mirrored_site(actual.streams[actual.names[0]]):
        raise OperatorError(
            f"{', '.join(missing) or actual.names[0]} is not there, or a copy of another site's: set it up with `logbroker "
            "apply`, or run `logbroker partitions` at that site"
        )
    return actual


async def consumers_of(connection: Connection, stream: str) -> list[dict[str, Any]]:
    """Return what the server tells of every consumer of a stream; raises as `pages`."""
    return await connection.pages(f"CONSUMER.LIST.{stream}", "consumers")


async def described(
    connection: Connection, name: str, asked: Mapping[str, Any] | None = None
) -> Mapping[str, Any] | None:
    """Return the answer to STREAM.INFO, None where there is no such stream; raises `Rejected`, `ConnectionLost`."""
    try:
        return await connection.api(f"STREAM.INFO.{name}", asked)
    except Rejected as error:
        if error.error != STREAM_NOT_FOUND:
            raise
        return None


async def _entry(connection: Connection, key: str) -> tuple[str | None, int]:
    """Return the value of an entry and its revision; None and 0 where there is none."""
    entry = await bucket.read(connection, CONFIG_BUCKET, key)
    if entry is None:
        return None, 0
    return printable(entry.value.decode("utf-8", "replace")), entry.revision


async def carry_out(
    connection: Connection, steps: Sequence[Step], patience: float = _PATIENCE
) -> None:
    """Take the steps of a plan, each for at most `patience` seconds: in their order, those of one kind that stand together at once."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(step: Step) -> None:
        async with gate:
            await _take(step, connection, patience)

    for _, stage in groupby(steps, lambda step: step.kind):
        await asyncio.gather(*map(one, stage))


async def _take(step: Step, connection: Connection, patience: float) -> None:
    what = f"{step.action} {step.kind} {step.name}"
    try:
        match step.kind:
            case "entry":
                await _write_entry(connection, step)
            case "stream":
                call = f"STREAM.{step.action.upper()}.{step.name}"
                await connection.api(call, step.config, patience)
            case "consumer":
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
            f"{connection.servers} refuses to {what}: {error.description}; see --replicas (of a cluster), --max-bytes, "
            "--max-store and --mirror"
        ) from None


async def _write_entry(connection: Connection, step: Step) -> None:
    """Write the entry, if it is still as the plan found it."""
    key = step.name.rpartition("/")[2]
    found, revision = await _entry(connection, key)
    if found != (step.changes[0].before if step.changes else None):
        raise bucket.Conflict(f"{step.name} is no longer as it was")
    await bucket.write(connection, CONFIG_BUCKET, key, step.config["value"].encode(), revision)


async def provision(
    connection: Connection,
    desired: Topology,
    member: str | None,
    stored: frozenset[str],
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Bring the server to what is declared, log what that changed, and return what it tells of the streams (STREAM.INFO).

    `member` is its name in a cluster, which is waited for and told of by `tell`. A server that is alone, and does not know a
    stream that is `stored`, would begin it anew: then nothing is done. Raises `OperatorError`, also where it does not answer.
    """
    try:
        if member is not None:
            done = await join(connection, member, desired, tell)
        else:
            known = await connection.pages("STREAM.NAMES", "streams")
            if lost := sorted(stored.difference(known)):
                raise OperatorError(
                    f"nats-server could not recover {', '.join(lost)}, see its log above; nothing was changed: mend the "
                    "store, or start with an empty one and `logbroker restore` a backup"
                )
            done = await apply(connection, desired)
        names = stream_names(await read_streams(connection))
        infos = [await connection.api(f"STREAM.INFO.{name}") for name in names]
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"nats-server at {connection.servers} does not answer as it should: {error}"
        ) from None
    # the rights of receivers are made for the declared number
    if (count := len(names)) != desired.stream_count:
        raise ConfigurationError(f"the broker has {count} streams; give --streams {count}")
    for line in describe(step for step in done if step.changes).splitlines():
        logger.info("%s", line)
    return infos


async def join(
    connection: Connection, server: str, desired: Topology, tell: Callable[[str], None]
) -> tuple[Step, ...]:
    """Return what was done, once the cluster is as declared, however long that takes; `tell` hears what is waited for, and then an empty text."""
    while True:
        try:
            done = await _attempt(connection, server, desired)
        # another one was quicker, nobody leads, or a disk fails
        except (ConnectionLost, Rejected, bucket.Conflict, OperatorError) as error:
            if isinstance(error, ConfigurationError) and not isinstance(error, Refused):
                raise
            tell(str(error))
        else:
            tell("")
            return done
        await asyncio.sleep(_PAUSE)


async def _attempt(connection: Connection, server: str, desired: Topology) -> tuple[Step, ...]:
    # nobody answers while there is no leader, so that is asked often rather than for long
    await connection.api("STREAM.NAMES", patience=_SHORT)
    own = desired.bound
    if own is None or own <= 0:
        return await apply(connection, desired, _STEP)
    room: int = 0
    done: tuple[Step, ...] = ()
    while room != (room := min([own, *(await _of_others(connection, server))])):
        done = await apply(connection, replace(desired, room=room), _STEP)
        # told only now, where there was no bucket before; whoever was smaller meanwhile is seen by the next look
        key = f"{_CAPACITY}.{server}"
        told, revision = await _entry(connection, key)
        if told != str(own):
            # a bucket that is the copy of another site's takes no entries of ours, and needs none
            with suppress(Rejected):
                await bucket.write(connection, CONFIG_BUCKET, key, b"%d" % own, revision)
    return done


async def _of_others(connection: Connection, server: str) -> list[int]:
    """Return the bytes that the stream may have on each other server that has told; raises `Rejected`, `ConnectionLost`."""
    prefix = f"$KV.{CONFIG_BUCKET}.{_CAPACITY}."
    asked = {"subjects_filter": f"{prefix}>"}
    info = await described(connection, f"KV_{CONFIG_BUCKET}", asked)
    if info is None or info["config"].get("mirror"):
        return []  # we are the first of all, or these are another site's
    others = {subject.removeprefix(prefix) for subject in info["state"].get("subjects") or ()}
    names = sorted(others - {server})
    told = [(await _entry(connection, f"{_CAPACITY}.{one}"))[0] or "" for one in names]
    return [int(one) for one in told if one.isdecimal() and len(one) < 20]
