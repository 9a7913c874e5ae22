"""Configurations of streams and consumers as the nats CLI writes and reads them: JSON of the JetStream API, a file for each."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.provision.apply import consumers_of, refuse_half
from broker.provision.plan import Step, compare
from broker.wire.streams import existing_in

_NOT_OURS = ("_nats.", "logship.")  # metadata that tells of a server, or of a stream's own past
_OF_CONSUMERS = frozenset({"ack_policy", "deliver_policy", "durable_name", "filter_subject"})
_NO_NAME = frozenset(" .*>/\\\t\r\n")


async def export(connection: Connection) -> dict[str, str]:
    """Return the texts by file name of all streams and their durable consumers."""
    streams = await _streams(connection)
    files: dict[str, Mapping[str, Any]] = {}
    for stream in sorted(streams):
        files[stream] = streams[stream]
        for info in await consumers_of(connection, stream):
            if durable := info["config"].get("durable_name"):
                files[f"{stream}.{durable}"] = info["config"]
    return {
        f"{name}.json": json.dumps(_cleaned(one), indent=2) + "\n" for name, one in files.items()
    }


def parse(name: str, text: str) -> Step:
    """Read a file by its name and text: of `export`, or what `nats stream info --json` or `nats consumer info --json` show."""
    try:
        found = json.loads(text)
        config = found["config"] if isinstance(found.get("config"), dict) else found
        is_fit = isinstance(config.get("metadata") or {}, dict)
        is_fit &= isinstance(config.get("subjects") or [], list)
    except (ValueError, RecursionError, AttributeError):
        is_fit = False
    if not is_fit:
        raise ConfigurationError(f"{name} is not the JSON of a stream or of a consumer")
    if not _OF_CONSUMERS & config.keys():
        return Step("stream", _named(name, config.get("name")), _cleaned(config))
    consumer = _named(name, config.get("durable_name") or config.get("name"))
    stream = found.get("stream_name") or name.removesuffix(".json").removesuffix(f".{consumer}")
    return Step("consumer", consumer, _cleaned(config), _named(name, stream))


def _named(file: str, value: Any) -> str:
    if not isinstance(value, str) or not value or _NO_NAME & set(value):
        raise ConfigurationError(f"{file}: {value!r} is no name of a stream or of a consumer")
    return value


def _cleaned(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what a server, or a restored backup, wrote into it."""
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    metadata = kept.pop("metadata", {})
    if own := {name: one for name, one in metadata.items() if not name.startswith(_NOT_OURS)}:
        kept["metadata"] = own
    if not kept.get("duplicate_window"):
        kept.pop("duplicate_window", None)  # the server's default then, which depends on the age
    return kept


async def plan_import(connection: Connection, wanted: Iterable[Step]) -> tuple[Step, ...]:
    """Return what makes streams and consumers as wanted; all others stay."""
    everything = sorted(wanted, key=lambda one: one.kind == "consumer")
    streams = await _streams(connection)
    refuse_half(streams)
    names = sorted({one.stream for one in everything} & streams.keys())
    of_each = await asyncio.gather(*(consumers_of(connection, name) for name in names))
    there = {
        (name, info["name"]): info["config"]
        for name, infos in zip(names, of_each, strict=True)
        for info in infos
    } | {("", name): config for name, config in streams.items()}
    return tuple(
        chain.from_iterable(
            compare(_with_partitions(one, found), found)
            for one in everything
            for found in [there.get((one.stream, one.name))]
        )
    )


async def _streams(connection: Connection) -> dict[str, Mapping[str, Any]]:
    infos = await connection.pages("STREAM.LIST", "streams")
    return {info["config"]["name"]: info["config"] for info in infos}


def _with_partitions(wanted: Step, found: Mapping[str, Any] | None) -> Step:
    """Return a stream that keeps the subjects of the partitions that exist: those that hosts have left as well."""
    asked, there = wanted.config.get("subjects"), (found or {}).get("subjects")
    if not asked or not there:
        return wanted
    kept = [one for one in there if existing_in([one]) and one not in asked]
    return replace(wanted, config={**wanted.config, "subjects": [*asked, *kept]})
