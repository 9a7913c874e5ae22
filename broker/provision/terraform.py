"""Configurations in the JSON syntax of Terraform, for its provider nats-io/jetstream. Writes only.

Lengths of time are whole seconds there. Names and defaults are those of the provider's schema.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from broker.provision.comparing import Wanted
from broker.provision.document import Document
from broker.provision.steps import Kind
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY

__all__ = ["terraform"]

_NANOSECONDS = 1_000_000_000
_PROVIDER = {"required_providers": {"jetstream": {"source": "nats-io/jetstream"}}}
Fields = dict[str, Any]


def terraform(document: Document, servers: str) -> str:
    """Return the text of a `main.tf.json`; credentials are the operator's to add."""
    streams = {one.name: _stream(one.config) for one in document.wanted if one.kind is Kind.STREAM}
    consumers = {
        f"{one.stream}_{one.name}": _consumer(one)
        for one in document.wanted
        if one.kind is Kind.CONSUMER
    }
    resources: Fields = {"jetstream_stream": streams, "jetstream_consumer": consumers}
    if document.partitions is not None:
        entry = {
            "bucket": CONFIG_BUCKET,
            "key": PARTITIONS_KEY,
            "value": str(document.partitions),
            "depends_on": [f"jetstream_stream.KV_{CONFIG_BUCKET}"],
        }
        resources["jetstream_kv_entry"] = {f"{CONFIG_BUCKET}_{PARTITIONS_KEY}": entry}
    whole = {
        "terraform": _PROVIDER,
        "provider": {"jetstream": {"servers": servers}},
        "resource": {kind: found for kind, found in resources.items() if found},
    }
    return json.dumps(whole, indent=2) + "\n"


def _seconds(value: int) -> int:
    return -(-value // _NANOSECONDS)


def _same(value: Any) -> Any:
    """Return a value as it is; what Terraform would take for an expression is escaped."""
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, list):
        return [_same(one) for one in value]
    if isinstance(value, dict):
        return {name: _same(one) for name, one in value.items()}
    return value


def _renamed(
    config: Mapping[str, Any], names: Mapping[str, tuple[str, Callable[[Any], Any]]]
) -> Fields:
    return {
        name: convert(config[field])
        for field, (name, convert) in names.items()
        if config.get(field) not in (None, "", [], {})
    }


def _transform(value: Mapping[str, Any]) -> Fields:
    return {"source": _same(value.get("src", "")), "destination": _same(value.get("dest", ""))}


def _source(value: Mapping[str, Any]) -> Fields:
    return _renamed(
        value,
        {
            "name": ("name", _same),
            "opt_start_seq": ("start_seq", _same),
            "opt_start_time": ("start_time", _same),
            "filter_subject": ("filter_subject", _same),
            "subject_transforms": ("subject_transform", lambda many: list(map(_transform, many))),
            "external": ("external", lambda one: [_same(one)]),
        },
    )


_STREAM: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    **{
        field: (field, _same)
        for field in [
            "name",
            "description",
            "metadata",
            "subjects",
            "discard",
            "discard_new_per_subject",
            "max_msgs",
            "max_msgs_per_subject",
            "max_bytes",
            "max_msg_size",
            "storage",
            "retention",
            "compression",
            "max_consumers",
            "deny_delete",
            "deny_purge",
            "allow_rollup_hdrs",
            "allow_direct",
            "mirror_direct",
            "allow_msg_ttl",
            "allow_msg_counter",
            "allow_atomic",
            "allow_msg_schedules",
            "first_seq",
            "persist_mode",
            "allow_batched",
        ]
    },
    "num_replicas": ("replicas", _same),
    "max_age": ("max_age", _seconds),
    "duplicate_window": ("duplicate_window", _seconds),
    "subject_delete_marker_ttl": ("subject_delete_marker_ttl", _seconds),
    "no_ack": ("ack", lambda without: not without),
    "subject_transform": ("subject_transform", lambda one: [_transform(one)]),
    "mirror": ("mirror", lambda one: [_source(one)]),
    "sources": ("source", lambda many: list(map(_source, many))),
}
_PARTS: Mapping[str, Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "placement": {
        "cluster": ("placement_cluster", _same),
        "tags": ("placement_tags", _same),
        "preferred": ("placement_preferred", _same),
    },
    "republish": {
        "src": ("republish_source", _same),
        "dest": ("republish_destination", _same),
        "headers_only": ("republish_headers_only", _same),
    },
    "consumer_limits": {
        "max_ack_pending": ("max_ack_pending", _same),
        "inactive_threshold": ("inactive_threshold", _seconds),
    },
}


def _stream(config: Mapping[str, Any]) -> Fields:
    fields = _renamed(config, _STREAM)
    for part, names in _PARTS.items():
        fields |= _renamed(config.get(part) or {}, names)
    return fields


_CONSUMER: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    **{
        field: (field, _same)
        for field in [
            "description",
            "metadata",
            "durable_name",
            "ack_policy",
            "filter_subject",
            "filter_subjects",
            "replay_policy",
            "max_ack_pending",
            "flow_control",
            "max_waiting",
            "headers_only",
            "max_batch",
            "max_bytes",
            "priority_policy",
            "priority_groups",
        ]
    },
    "deliver_subject": ("delivery_subject", _same),
    "deliver_group": ("delivery_group", _same),
    "opt_start_seq": ("stream_sequence", _same),
    "opt_start_time": ("start_time", _same),
    "ack_wait": ("ack_wait", _seconds),
    "max_deliver": ("max_delivery", _same),
    "sample_freq": ("sample_freq", lambda text: int(str(text).rstrip("%") or 0)),
    "rate_limit_bps": ("ratelimit", _same),
    "idle_heartbeat": ("heartbeat", _seconds),
    "max_expires": ("max_expires", _seconds),
    "inactive_threshold": ("inactive_threshold", _seconds),
    "num_replicas": ("replicas", _same),
    "mem_storage": ("memory", _same),
    "backoff": ("backoff", lambda many: list(map(_seconds, many))),
    "priority_timeout": ("priority_timeout", _seconds),
}
_BEGINNINGS = {
    "all": "deliver_all",
    "last": "deliver_last",
    "new": "deliver_new",
    "last_per_subject": "deliver_last_per_subject",
}


def _consumer(one: Wanted) -> Fields:
    begin = _BEGINNINGS.get(one.config.get("deliver_policy", "all"))
    return {
        "stream_id": f"${{jetstream_stream.{one.stream}.id}}",
        **_renamed({"durable_name": one.name, **one.config}, _CONSUMER),
        **({begin: True} if begin else {}),
    }
