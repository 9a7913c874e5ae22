"""Brings a broker to what is declared: asks what is there, has it planned, and carries the plan out.

In a cluster all brokers try, and may at once. A start there only lowers the limit of a stream, since another server may hold less.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.provision.plan import Actual, BeingRestored, Step, describe, plan, refuse_half_restored
from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.text import format_count, printable
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected, is_certain
from nats_logship.client.config import read_streams
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    STREAMS_KEY,
    stream_names,
)

_PATIENCE = 60.0  # seconds for a step: nats-server syncs each to a disk that may be slow
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
    try:
        made = plan(desired, await read_actual(connection, desired))
    except BeingRestored as error:
        logger.warning("%s", error)
        return ()
    for step in made:
        if step.deletes:
            logger.warning(
                "%s stays as it is, since the change %s; `logbroker apply` with the same settings "
                "asks, and does it",
                step.name,
                step.deletes,
            )
    safe = tuple(step for step in made if not step.deletes)
    await carry_out(connection, safe, patience)
    return safe


async def read_actual(connection: Connection, desired: Topology) -> Actual:
    """Return what is there of what is declared, whatever number of streams that is."""
    names = frozenset(await connection.list_all("STREAM.NAMES", "streams"))
    entries: dict[str, tuple[str, int]] = {}
    if f"KV_{CONFIG_BUCKET}" in names:
        for key in (PARTITIONS_KEY, STREAMS_KEY):
            if entry := await bucket.read(connection, CONFIG_BUCKET, key):
                text = printable(entry.value.decode("utf-8", "replace"))
                entries[key] = text, entry.revision
    found = Actual({}, entries)
    desired = replace(desired, stream_count=found.stream_count or desired.stream_count)
    declared = [config["name"] for config in desired.streams() if config["name"] in names]
    infos = await asyncio.gather(*(_stream(connection, name) for name in declared))
    return replace(found, streams=dict(zip(declared, infos, strict=True)))


async def _stream(connection: Connection, name: str) -> Mapping[str, Any]:
    info = await connection.api(f"STREAM.INFO.{name}")
    # a stream that seems empty would let the number of partitions change
    if not is_certain(info):
        raise ConnectionLost(f"stream {name} has no leader that is sure of it")
    return info


async def read_partitions(connection: Connection) -> Actual:
    """Return what is there; raises `OperatorError` where the number of partitions cannot be changed here, else as `look`."""
    actual = await read_actual(connection, Topology())
    refuse_half_restored(actual.streams)
    if len(actual.infos) < len(actual.names) or actual.mirror:
        raise OperatorError(
            f"{', '.join(actual.names)} is not there, or a copy of another site's: set it up with `logbroker apply`, or "
            "run `logbroker partitions` at that site"
        )
    return actual


async def list_consumers(connection: Connection, stream: str) -> list[dict[str, Any]]:
    """Return what the server tells of every consumer of a stream; raises as `pages`."""
    return await connection.list_all(f"CONSUMER.LIST.{stream}", "consumers")


async def find_stream_info(connection: Connection, name: str) -> Mapping[str, Any] | None:
    """Return the answer to STREAM.INFO, None where there is no such stream; raises `Rejected`, `ConnectionLost`."""
    try:
        return await connection.api(f"STREAM.INFO.{name}")
    except Rejected as error:
        if not error.is_absent:
            raise
        return None


async def carry_out(
    connection: Connection, steps: Sequence[Step], patience: float = _PATIENCE
) -> None:
    """Take the steps of a plan in their order, each for at most `patience` seconds."""
    for step in steps:
        what = f"{step.action} {step.kind} {step.name}"
        try:
            match step.kind:
                case "entry":
                    key, value = step.name.rpartition("/")[2], step.config["value"].encode()
                    await bucket.write(connection, CONFIG_BUCKET, key, value, step.revision)
                case "stream":
                    call = f"STREAM.{step.action.upper()}.{step.name}"
                    await connection.api(call, step.config, patience)
        except bucket.Conflict:
            raise OperatorError(f"{step.name} was changed by somebody else; try again") from None
        except Rejected as error:
            if error.is_server_failure:
                raise OperatorError(
                    f"{connection.servers} failed to {what}: {error.description}; check the disk of its store and its log, "
                    "then try again"
                ) from None
            raise Refused(
                f"{connection.servers} refuses to {what}: {error.description}; see --replicas (of a cluster), --max-bytes "
                "and --mirror"
            ) from None


async def provision(
    connection: Connection,
    desired: Topology,
    stored: frozenset[str],
    tell: Callable[[str], None],
    *,
    in_cluster: bool,
) -> list[dict[str, Any]]:
    """Bring the server to what is declared, log what that changed, and return what it tells of the streams (STREAM.INFO).

    A cluster is waited for, and told of by `tell`. A server that is alone, and does not know a stream that is `stored`, would
    begin it anew: then nothing is done. Raises `OperatorError`, also where it does not answer.
    """
    try:
        if in_cluster:
            done = await _join(connection, desired, tell)
        else:
            known = await connection.list_all("STREAM.NAMES", "streams")
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
        raise ConfigurationError(
            f"the broker has {format_count(count, 'stream')}; give --streams {count}"
        )
    for line in describe(step for step in done if step.changes).splitlines():
        logger.info("%s", line)
    return infos


async def _join(
    connection: Connection, desired: Topology, tell: Callable[[str], None]
) -> tuple[Step, ...]:
    """Return what was done, once the cluster is as declared, however long that takes; `tell` hears what is waited for, and then an empty text."""
    while True:
        try:
            # nobody answers while there is no leader, so that is asked often rather than for long
            await connection.api("STREAM.NAMES", patience=_SHORT)
            done = await apply(connection, desired, _STEP)
        # another one was quicker, nobody leads, or a disk fails
        except (ConnectionLost, Rejected, OperatorError) as error:
            if isinstance(error, ConfigurationError) and not isinstance(error, Refused):
                raise
            tell(str(error))
        else:
            tell("")
            return done
        await asyncio.sleep(_PAUSE)
