"""Configurations of streams and consumers as the nats CLI writes and reads them: JSON of the JetStream API, a file for each."""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from broker.app.exits import ConfigurationError
from broker.client.connection import Connection
from broker.provision.apply import consumers_of, refuse_half
from broker.provision.steps import ResourceKind, Step, compare
from broker.topology import is_computed
from broker.wire.streams import existing_in

__all__ = ["MalformedFile", "export", "parse", "plan_import"]

_NOT_OURS = ("_nats.", "logship.")  # metadata that tells of a server, or of a stream's own past
_OF_CONSUMERS = frozenset({"ack_policy", "deliver_policy", "durable_name", "filter_subject"})
_NO_NAME = frozenset(" .*>/\\\t\r\n")


class MalformedFile(ValueError):
    """A text that is no configuration of a stream or consumer."""


async def export(connection: Connection, only: Collection[str] = ()) -> dict[str, str]:
    """Return the texts by file name of all streams and their durable consumers, or of the streams in `only`.

    Each is what `nats stream add` or `nats consumer add` take with --config, without a limit that nobody asked for.
    Raises `ConfigurationError` for a stream that is not there, `Rejected`, `ConnectionLost`.
    """
    streams = await _streams(connection)
    if missing := sorted(set(only) - streams.keys()):
        raise ConfigurationError(f"no such stream: {', '.join(missing)}")
    names = [name for name in sorted(streams) if name in only or not only]
    files = {f"{name}.json": _asked_for(streams[name]) for name in names}
    of_each = await asyncio.gather(*(consumers_of(connection, name) for name in names))
    for stream, consumers in zip(names, of_each, strict=True):
        for config in (info["config"] for info in consumers):
            if config.get("durable_name"):
                files[f"{stream}.{config['durable_name']}.json"] = config
    return {name: json.dumps(_cleaned(config), indent=2) + "\n" for name, config in files.items()}


def _asked_for(config: Mapping[str, Any]) -> Mapping[str, Any]:
    computed = {"max_bytes"} if is_computed(config) else set()
    return {field: value for field, value in config.items() if field not in computed}


def parse(name: str, text: str) -> Step:
    """Read a file by its name and text: of `export`, or what `nats stream info --json` or `nats consumer info --json` show.

    The server itself refuses fields that it does not know. Raises `MalformedFile`.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFile(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise MalformedFile("not a JSON object")
    config = found["config"] if isinstance(found.get("config"), dict) else found
    for field, kind in (("metadata", dict), ("subjects", list)):
        if not isinstance(config.get(field) or kind(), kind):
            raise MalformedFile(f"{field} is no {'list' if kind is list else 'JSON object'}")
    if not _OF_CONSUMERS & config.keys():
        return Step(ResourceKind.STREAM, _name(config.get("name"), "stream"), _cleaned(config))
    consumer = _name(config.get("durable_name") or config.get("name"), "consumer")
    stream = found.get("stream_name") or name.removesuffix(".json").removesuffix(f".{consumer}")
    return Step(ResourceKind.CONSUMER, consumer, _cleaned(config), _name(stream, "stream"))


def _name(value: Any, kind: str) -> str:
    if not isinstance(value, str) or not value or _NO_NAME & set(value):
        raise MalformedFile(f"{value!r} is no name of a {kind}")
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
    """Return what makes streams and consumers as wanted; all others stay.

    Raises `ConfigurationError` while a backup is restored, `Rejected`, `ConnectionLost`.
    """
    everything = sorted(wanted, key=lambda one: one.kind is ResourceKind.CONSUMER)
    streams = await _streams(connection)
    refuse_half(streams)
    consumers = {
        (name, info["name"]): info["config"]
        for name in {one.stream for one in everything if one.stream} & streams.keys()
        for info in await consumers_of(connection, name)
    }
    found = (
        compare(one, consumers.get((one.stream, one.name)))
        if one.stream
        else compare(_with_partitions(one, streams.get(one.name)), streams.get(one.name))
        for one in everything
    )
    return tuple(chain(*found))


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
