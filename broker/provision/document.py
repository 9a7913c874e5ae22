"""Configurations of streams and consumers as JSON, in the form of the JetStream API, which the `nats` CLI reads and writes.

Reads with tolerance: what a server adds is left out, and fields that nobody here knows are named. Never talks to a server.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.provision.comparing import Wanted
from broker.provision.steps import Kind
from broker.wire.streams import CONFIG_BUCKET, MAX_PARTITIONS, PARTITIONS_KEY, partitions_in

__all__ = ["Document", "MalformedDocument", "cleaned", "files", "read", "text"]

_VERSION = 1
_NOT_OURS = ("_nats.", "logship.")  # metadata that tells of a server, or of a stream's own past
_ENTRY_FILE = f"{CONFIG_BUCKET}.{PARTITIONS_KEY}"
_STREAM_FIELDS = frozenset(
    [
        "name",
        "description",
        "subjects",
        "retention",
        "max_consumers",
        "max_msgs",
        "max_bytes",
        "max_age",
        "max_msgs_per_subject",
        "max_msg_size",
        "discard",
        "storage",
        "num_replicas",
        "no_ack",
        "duplicate_window",
        "placement",
        "mirror",
        "sources",
        "compression",
        "first_seq",
        "subject_transform",
        "republish",
        "allow_direct",
        "mirror_direct",
        "discard_new_per_subject",
        "sealed",
        "deny_delete",
        "deny_purge",
        "allow_rollup_hdrs",
        "consumer_limits",
        "allow_msg_ttl",
        "subject_delete_marker_ttl",
        "allow_msg_counter",
        "allow_atomic",
        "allow_msg_schedules",
        "persist_mode",
        "allow_batched",
        "metadata",
    ]
)
_CONSUMER_FIELDS = frozenset(
    [
        "durable_name",
        "name",
        "description",
        "deliver_policy",
        "opt_start_seq",
        "opt_start_time",
        "ack_policy",
        "ack_wait",
        "max_deliver",
        "backoff",
        "filter_subject",
        "filter_subjects",
        "replay_policy",
        "rate_limit_bps",
        "sample_freq",
        "max_waiting",
        "max_ack_pending",
        "flow_control",
        "headers_only",
        "max_batch",
        "max_expires",
        "max_bytes",
        "deliver_subject",
        "deliver_group",
        "idle_heartbeat",
        "inactive_threshold",
        "num_replicas",
        "mem_storage",
        "metadata",
        "pause_until",
        "priority_groups",
        "priority_policy",
        "priority_timeout",
    ]
)
_OBJECTS = frozenset(
    {"metadata", "placement", "mirror", "subject_transform", "republish", "consumer_limits"}
)
_LISTS = frozenset({"subjects", "sources", "backoff", "filter_subjects", "priority_groups"})
_OF_CONSUMERS = frozenset({"ack_policy", "deliver_policy", "durable_name", "filter_subject"})


class MalformedDocument(ValueError):
    """A text that is no configuration of a stream or consumer."""


@dataclass(frozen=True, slots=True)
class Document:
    """Configurations, streams before consumers, and the number of partitions where it is said.

    `unknown` names fields that were left out since no server of ours knows them.
    """

    wanted: tuple[Wanted, ...]
    partitions: int | None = None
    unknown: tuple[str, ...] = ()

    def __add__(self, other: "Document") -> "Document":
        """Return both together."""
        both = (*self.wanted, *other.wanted)
        return Document(
            tuple(sorted(both, key=lambda one: one.kind is Kind.CONSUMER)),
            self.partitions if other.partitions is None else other.partitions,
            (*self.unknown, *other.unknown),
        )


def cleaned(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what a server, or a restored backup, wrote into it."""
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    metadata = config.get("metadata")
    if isinstance(metadata, Mapping):
        own = {name: one for name, one in metadata.items() if not name.startswith(_NOT_OURS)}
        kept.pop("metadata", None)
        kept |= {"metadata": own} if own else {}
    return kept


def text(document: Document) -> str:
    """Return all of it as one JSON text."""
    streams = [one.config for one in document.wanted if one.kind is Kind.STREAM]
    consumers = [
        {"stream_name": one.stream, "config": one.config}
        for one in document.wanted
        if one.kind is Kind.CONSUMER
    ]
    number = {} if document.partitions is None else {"partitions": document.partitions}
    whole = {"logship": _VERSION, **number, "streams": streams, "consumers": consumers}
    return json.dumps(whole, indent=2) + "\n"


def files(document: Document) -> dict[str, str]:
    """Return all of it as texts by file name: each is what `nats stream add` or `nats consumer add` take with --config."""
    named = {
        f"{one.stream}.{one.name}.json" if one.stream else f"{one.name}.json": (
            json.dumps(one.config, indent=2) + "\n"
        )
        for one in document.wanted
    }
    if document.partitions is not None:
        named[_ENTRY_FILE] = f"{document.partitions}\n"
    return named


def read(name: str, content: str) -> Document:
    """Read a file by its name and text: ours of either form, or what the `nats` CLI shows of a stream or consumer.

    Raises `MalformedDocument`.
    """
    if name == _ENTRY_FILE:
        return Document((), _partitions(content.strip()))
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedDocument(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise MalformedDocument("not a JSON object")
    if "logship" in found:
        return _whole(found)
    return _single(found, name)


def _whole(found: Mapping[str, Any]) -> Document:
    if found["logship"] != _VERSION:
        raise MalformedDocument(
            f"of version {found['logship']!r}, of which this program knows nothing"
        )
    parts = [_stream(config) for config in _list(found, "streams")]
    for one in _list(found, "consumers"):
        if not isinstance(one, dict):
            raise MalformedDocument("has a consumer that is no JSON object")
        parts.append(_consumer(str(one.get("stream_name") or ""), one.get("config")))
    number = None if found.get("partitions") is None else _partitions(found["partitions"])
    known = {"logship", "partitions", "streams", "consumers"}
    return sum(parts, Document((), number, tuple(sorted(found.keys() - known))))


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list):
        raise MalformedDocument(f"{key} is not a list")
    return value


def _single(found: Mapping[str, Any], name: str) -> Document:
    # `nats stream info --json` and `nats consumer info --json` have the configuration inside
    config = found["config"] if isinstance(found.get("config"), dict) else found
    if not _OF_CONSUMERS & config.keys():
        return _stream(config)
    of_file, separator, _ = name.removesuffix(".json").partition(".")
    return _consumer(str(found.get("stream_name") or (of_file if separator else "")), config)


def _stream(config: Any) -> Document:
    if not isinstance(config, dict):
        raise MalformedDocument("has a stream that is no JSON object")
    name = _name(config.get("name"), "stream")
    own, unknown = _known(config, _STREAM_FIELDS, f"stream {name}")
    _check_kinds(own, f"stream {name}")
    if not own.get("duplicate_window"):
        own.pop("duplicate_window", None)  # the server's default then, which depends on the age
    return Document((Wanted(Kind.STREAM, name, own),), None, unknown)


def _consumer(stream: str, config: Any) -> Document:
    if not isinstance(config, dict):
        raise MalformedDocument("has a consumer that is no JSON object")
    name = _name(config.get("durable_name") or config.get("name"), "consumer")
    if not stream:
        raise MalformedDocument(
            f"does not say of which stream consumer {name} is: call the file STREAM.{name}.json"
        )
    own, unknown = _known(config, _CONSUMER_FIELDS, f"consumer {name}")
    _check_kinds(own, f"consumer {name}")
    return Document((Wanted(Kind.CONSUMER, name, own, _name(stream, "stream")),), None, unknown)


def _known(
    config: Mapping[str, Any], fields: Iterable[str], where: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    known = frozenset(fields)
    unknown = tuple(f"{field} of {where}" for field in config if field not in known)
    return cleaned({field: value for field, value in config.items() if field in known}), unknown


def _check_kinds(config: Mapping[str, Any], where: str) -> None:
    """Refuse what no server can read, and what we look into."""
    for field, value in config.items():
        if field in _OBJECTS and not isinstance(value, dict):
            raise MalformedDocument(f"{field} of {where} is no JSON object")
        if field in _LISTS and not isinstance(value, list):
            raise MalformedDocument(f"{field} of {where} is no list")
    if not all(isinstance(text, str) for text in config.get("metadata", {}).values()):
        raise MalformedDocument(f"metadata of {where} holds what is no text")


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value or set(value) & set(" .*>/\\\t\r\n"):
        raise MalformedDocument(f"{value!r} is no name of a {what}")
    return value


def _partitions(value: Any) -> int:
    number = partitions_in(str(value))
    if number is None:
        raise MalformedDocument(
            f"{value!r} is no number of partitions: there are 1 to {MAX_PARTITIONS}"
        )
    return number
