"""Brings a broker to the declared state: reads the actual state, plans steps, carries them out.

In a cluster all brokers do this, possibly at once. At a start a broker only lowers the limit of a
stream, since another server may have less space.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from broker.provision.plan import Actual, BeingRestored, Step, describe, plan, refuse_half_restored
from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.text import format_count, printable
from nats_logship.app.units import format_duration
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected, require_certain
from nats_logship.client.config import find_streams
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, STREAMS_KEY, stream_names

_PATIENCE = 60.0  # seconds for a step: nats-server syncs each to a disk that may be slow
_PAUSE = 0.5  # seconds between attempts in a cluster
_LEADER_PATIENCE = 1.0  # seconds for an answer of a cluster that may have no leader
_CLUSTER_PATIENCE = 5.0  # seconds for a step in a cluster; the next attempt finds a late one done
_OVERLAP = _CLUSTER_PATIENCE + 1  # another broker may take a step that it planned before ours
logger = logging.getLogger(__name__)


class Refused(ConfigurationError):
    """The server refuses a configuration; another leader of a cluster may accept it."""


async def apply(
    connection: Connection, desired: Topology, patience: float = _PATIENCE
) -> tuple[Step, ...]:
    """Bring the broker to the declared state, and return the steps that were taken.

    Steps that would delete stored lines are logged and not taken. Each step may take `patience`
    seconds. Raises `ConfigurationError` if the server refuses a step, and `OperatorError` if it
    fails at one.
    """
    try:
        made = plan(desired, await read_actual(connection, desired))
    except BeingRestored as error:
        logger.warning("%s", error)
        return ()
    for step in made:
        if step.deletes:
            logger.warning(
                "%s is not changed, because the change %s; `%s` asks first, and applies it",
                step.name,
                step.deletes,
                _name_command(desired, step),
            )
    safe = tuple(step for step in made if not step.deletes)
    await carry_out(connection, safe, patience)
    return safe


def _name_command(desired: Topology, step: Step) -> str:
    """Return the command that makes the changes of a step which `apply` does not take."""
    options = {
        "max_age": f"--max-age {format_duration(desired.max_age)}",
        "max_bytes": f"--max-bytes {desired.max_bytes}",
        "discard": f"--discard {desired.discard}",
    }
    changed = (options[one.field] for one in step.changes if one.field in options)
    return " ".join(("logbroker apply", *changed))


async def read_actual(connection: Connection, desired: Topology) -> Actual:
    """Return the streams and entries on the broker, also if their number is not `desired`."""
    names = frozenset(await list_all(connection, "STREAM.NAMES", "streams"))
    entries: dict[str, tuple[str, int]] = {}
    if f"KV_{CONFIG_BUCKET}" in names:
        for key in (PARTITIONS_KEY, STREAMS_KEY):
            if entry := await bucket.read(connection, CONFIG_BUCKET, key):
                text = printable(entry.value.decode("utf-8", "replace"))
                entries[key] = text, entry.revision
    found = Actual({}, entries)
    desired = replace(desired, stream_count=found.stream_count or desired.stream_count)
    declared = [config["name"] for config in desired.streams() if config["name"] in names]
    infos = await asyncio.gather(*(_read_stream(connection, name) for name in declared))
    return replace(found, streams=dict(zip(declared, infos, strict=True)))


async def _read_stream(connection: Connection, name: str) -> Mapping[str, Any]:
    info = await connection.api(f"STREAM.INFO.{name}")
    # with a stale answer a stream could seem empty, and the number of partitions would change
    require_certain(info)
    return info


async def read_partitions(connection: Connection) -> Actual:
    """Return the streams and entries of a broker whose number of partitions can be changed.

    Raises `OperatorError` if it cannot, and as `read_actual`.
    """
    actual = await read_actual(connection, Topology())
    refuse_half_restored(actual.streams)
    if len(actual.infos) < len(actual.names) or actual.mirror:
        raise OperatorError(
            f"{', '.join(actual.names)} does not exist, or is a mirror of another site: set it up "
            "with `logbroker apply`, or run `logbroker partitions` at that site"
        )
    return actual


async def list_all(connection: Connection, call: str, key: str) -> list[Any]:
    """Return the entries of all pages, e.g. of `list_all(connection, "STREAM.NAMES", "streams")`.

    Raises `Rejected`, and `ConnectionLost` if some are missing: their server may be down.
    """
    found: list[Any] = []
    while True:
        page = await connection.api(call, {"offset": len(found)})
        entries, missing = page.get(key) or [], page.get("missing") or []
        found.extend(entries)
        if missing or (not entries and len(found) < page.get("total", 0)):
            named = ", ".join(sorted(missing)) or "some"
            raise ConnectionLost(f"{call}: no server answers for {named}")
        if len(found) >= page.get("total", 0):
            return found


async def list_consumers(connection: Connection, stream: str) -> list[dict[str, Any]]:
    """Return CONSUMER.INFO of every consumer of a stream; raises as `list_all`."""
    return await list_all(connection, f"CONSUMER.LIST.{stream}", "consumers")


async def find_stream_info(connection: Connection, name: str) -> Mapping[str, Any] | None:
    """Return STREAM.INFO, None for no such stream; raises `Rejected`, `ConnectionLost`."""
    try:
        return await connection.api(f"STREAM.INFO.{name}")
    except Rejected as error:
        if not error.is_absent:
            raise
        return None


async def carry_out(
    connection: Connection, steps: Sequence[Step], patience: float = _PATIENCE
) -> None:
    """Take the steps of a plan in their order, each within `patience` seconds."""
    for step in steps:
        action = f"{step.action} {step.kind} {step.name}"
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
                    f"{connection.servers} failed to {action}: {error.description}; check the disk "
                    "of its store and its log, then try again"
                ) from None
            raise Refused(
                f"{connection.servers} refuses to {action}: {error.description}; see --replicas "
                "(in a cluster), --max-bytes and --mirror"
            ) from None


async def provision_alone(
    connection: Connection, desired: Topology, stored: frozenset[str]
) -> list[Mapping[str, Any]]:
    """Bring a server without a cluster to the declared state; return STREAM.INFO of each stream.

    Raises `OperatorError`, also if the server could not recover a `stored` stream, which would be
    created empty.
    """

    async def set_up() -> tuple[Step, ...]:
        known = await list_all(connection, "STREAM.NAMES", "streams")
        if lost := sorted(stored.difference(known)):
            raise OperatorError(
                f"nats-server could not recover {', '.join(lost)}, see its log above; nothing was "
                "changed: repair the store, or start with an empty one and `logbroker restore` a "
                "backup"
            )
        return await apply(connection, desired)

    return await _provision(connection, desired, set_up)


async def provision_cluster(
    connection: Connection,
    desired: Topology,
    report: Callable[[str], None],
    overlap: float = _OVERLAP,
) -> list[Mapping[str, Any]]:
    """Bring a cluster to the declared state, however long that takes; return STREAM.INFO of each.

    `report` gets each reason for waiting, and an empty text at the end. After a limit was lowered,
    it is checked again after `overlap` seconds. Raises `OperatorError`.
    """
    join = partial(_join, connection, desired, report, overlap)
    return await _provision(connection, desired, join)


async def _provision(
    connection: Connection,
    desired: Topology,
    set_up: Callable[[], Awaitable[tuple[Step, ...]]],
    attempts: int = 2,
) -> list[Mapping[str, Any]]:
    try:
        done = await set_up()
        # a restore that was interrupted may have deleted any stream, and needs a running broker
        is_set_up = await find_stream_info(connection, f"KV_{CONFIG_BUCKET}") is not None
        # a new mirror has no number before the first copy of the other site's bucket
        count = (await find_streams(connection) if is_set_up else None) or desired.stream_count
        infos = [await find_stream_info(connection, name) for name in stream_names(count)]
    except (ConnectionLost, Rejected) as error:
        # a reload that changes rights closes connections, also this one
        if attempts > 1 and isinstance(error, ConnectionLost):
            return await _provision(connection, desired, set_up, attempts - 1)
        raise OperatorError(f"cannot set up nats-server at {connection.servers}: {error}") from None
    # the rights of receivers were made for the declared number
    if count != desired.stream_count:
        raise ConfigurationError(
            f"the broker has {format_count(count, 'stream')}; give --streams {count}"
        )
    for line in describe(step for step in done if step.changes).splitlines():
        logger.info("%s", line)
    return [info for info in infos if info is not None]


async def _join(
    connection: Connection, desired: Topology, report: Callable[[str], None], overlap: float
) -> tuple[Step, ...]:
    """Try `apply` until it succeeds and lowers no limit, and return all steps.

    An update replaces the whole configuration. Another broker that read it before our update may
    raise a limit again that we lowered.
    """
    taken: tuple[Step, ...] = ()
    while True:
        try:
            # without a leader there is no answer, so ask often and wait briefly
            await connection.api("STREAM.NAMES", patience=_LEADER_PATIENCE)
            done = await apply(connection, desired, _CLUSTER_PATIENCE)
        # another broker was quicker, there is no leader, or a disk fails
        except (ConnectionLost, Rejected, OperatorError) as error:
            if isinstance(error, ConfigurationError) and not isinstance(error, Refused):
                raise
            report(str(error))
            await asyncio.sleep(_PAUSE)
            continue
        report("")
        taken += done
        if not any(change.field == "max_bytes" for step in done for change in step.changes):
            return taken
        await asyncio.sleep(overlap)
