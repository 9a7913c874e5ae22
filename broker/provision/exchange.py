"""Takes configurations from a broker, and plans how one gets those of a document. Changes nothing."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.provision.apply import consumers_of, look, refuse_half
from broker.provision.comparing import Wanted, compare
from broker.provision.document import Document, cleaned
from broker.provision.plan import merge, plan_entry
from broker.provision.steps import Change, Kind, Plan
from broker.topology import Topology
from broker.wire.streams import CONFIG_BUCKET, STREAM, existing_in, partitions_in

__all__ = ["gather", "overruled", "plan_document"]


async def gather(
    connection: Connection,
    only: Collection[str],
    asked_for: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Document:
    """Return the configurations of all streams and their durable consumers, or of the streams in `only`.

    `asked_for` says what of a stream's configuration somebody asked for.
    Raises `ConfigurationError` for a stream that is not there, `Rejected`, `ConnectionLost`.
    """
    streams = await _streams(connection)
    if missing := sorted(set(only) - streams.keys()):
        raise ConfigurationError(f"no such stream: {', '.join(missing)}")
    names = [name for name in sorted(streams) if name in only or not only]
    consumers = await asyncio.gather(*(consumers_of(connection, name) for name in names))
    return Document(
        (
            *(Wanted(Kind.STREAM, name, cleaned(asked_for(streams[name]))) for name in names),
            *(
                Wanted(Kind.CONSUMER, info["name"], cleaned(info["config"]), name)
                for name, infos in zip(names, consumers, strict=True)
                for info in sorted(infos, key=_by_number)
                if info["config"].get("durable_name")
            ),
        ),
        await _partitions(connection) if f"KV_{CONFIG_BUCKET}" in names else None,
    )


def _by_number(info: Mapping[str, Any]) -> tuple[int, str]:
    return len(info["name"]), info["name"]  # p2 before p10


async def _streams(connection: Connection) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    while True:
        page = await connection.api("STREAM.LIST", {"offset": len(found)})
        streams = page.get("streams") or []
        found |= {info["config"]["name"]: info["config"] for info in streams}
        if not streams or len(found) >= page.get("total", 0):
            return found


async def _partitions(connection: Connection) -> int | None:
    return partitions_in((await look(connection, Topology())).partitions)


async def plan_document(connection: Connection, document: Document) -> Plan:
    """Return what gives the broker what a document holds; what it does not name stays.

    Raises `ConfigurationError` while a backup is restored, `Rejected`, `ConnectionLost`.
    """
    streams = await _streams(connection)
    refuse_half(streams)
    consumers = {
        (name, info["name"]): info["config"]
        for name in {one.stream for one in document.wanted if one.stream} & streams.keys()
        for info in await consumers_of(connection, name)
    }
    made = merge(
        (one, consumers.get((one.stream, one.name)))
        if one.stream
        else (_with_partitions(one, streams.get(one.name)), streams.get(one.name))
        for one in document.wanted
    )
    if document.partitions is None:
        return made
    entry = plan_entry(document.partitions, await look(connection, Topology()))
    return Plan((*made.steps, *entry.steps), (*made.refusals, *entry.refusals), made.left)


def _with_partitions(wanted: Wanted, found: Mapping[str, Any] | None) -> Wanted:
    """Return a stream that keeps the subjects of the partitions that exist: those that hosts have left as well."""
    asked, there = wanted.config.get("subjects"), (found or {}).get("subjects")
    if wanted.name != STREAM or not asked or not there:
        return wanted
    kept = [one for one in there if existing_in([one]) and one not in asked]
    return replace(wanted, config={**wanted.config, "subjects": [*asked, *kept]})


def overruled(declared: Topology, document: Document) -> tuple[Change, ...]:
    """Return what of a document the settings say otherwise: `logbroker run` and `apply` would set it back."""
    ours = {config["name"]: config for config in declared.streams()}
    found: list[Change] = []
    for one in document.wanted:
        if one.name not in ours:
            continue
        config = {field: value for field, value in ours[one.name].items() if field in one.config}
        step = compare(Wanted(Kind.STREAM, one.name, config), one.config).step
        found.extend(step.changes if step else ())
    return tuple(found)
