"""How a configuration differs from the one that is there: what can be updated, what cannot, what is nobody's. Decides only.

What a server takes as an update was tried with nats-server 2.15.1, field by field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.provision.steps import Action, Change, Kind, Left, Step

__all__ = ["Difference", "Wanted", "compare"]

_MOVE = "back it up (logbroker backup), start on an empty store with the new setting, and restore it (logbroker restore)"
_RESTORE = "back it up, remove it, and restore it with another configuration (nats stream restore --config FILE)"
_MAKE_ANEW = "remove the consumer and apply again"

_UNBOUNDED = frozenset(
    {"max_age", "max_bytes", "max_msgs", "max_msg_size", "max_msgs_per_subject", "max_consumers"}
    | {"max_deliver", "max_ack_pending"}
)
_OWN_METADATA = (
    "_nats.",
    "logship.",
)  # what a server writes there of itself, and a restore of the stream's past
_DEFAULTS: Mapping[str, Any] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "compression": "none",
    "persist_mode": "default",
    "duplicate_window": 120 * 10**9,
    "max_waiting": 512,
    "max_deliver": -1,
    "deliver_policy": "all",
    "replay_policy": "instant",
}
_NOT_A_SETTING = frozenset(
    {"name", "durable_name", "subjects", "max_batch"}
)  # the last is a server's limit


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be there: a stream, a bucket's stream, or the consumer of a stream."""

    kind: Kind
    name: str
    config: Mapping[str, Any]
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """What to do about one of these, why that cannot be done, and what stays as it is."""

    step: Step | None
    refusals: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()


def compare(wanted: Wanted, found: Mapping[str, Any] | None) -> Difference:
    """Return what makes `found` as wanted; only fields that are wanted are compared, all others stay."""
    if found is None:
        return Difference(
            Step(Action.CREATE, wanted.kind, wanted.name, wanted.config, stream=wanted.stream)
        )
    changes = tuple(
        Change(field, found.get(field), _merged(field, found.get(field), value))
        for field, value in wanted.config.items()
        if not _same(field, found.get(field), _merged(field, found.get(field), value))
    )
    left = _left(wanted, found)
    refusals = tuple(text for change in changes if (text := _refusal(wanted, change)))
    if refusals or not changes:
        return Difference(None, refusals, left)
    config = {**found, **{change.field: change.after for change in changes}}
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    step = Step(Action.UPDATE, wanted.kind, wanted.name, kept, changes, wanted.stream)
    return Difference(step, (), left)


def _merged(field: str, before: Any, after: Any) -> Any:
    """Return what a field becomes: of metadata, which several may write to, only the names that are given are ours."""
    return {**(before or {}), **(after or {})} if field == "metadata" else after


def _same(field: str, before: Any, after: Any) -> bool:
    return bool(_normal(field, before) == _normal(field, after))


def _normal(field: str, value: Any) -> Any:
    if field in _UNBOUNDED and isinstance(value, int) and value <= 0:
        return None
    if field == "persist_mode" and value == "default":
        return None
    return value or None  # a server leaves out what is false, empty or nothing


def _left(wanted: Wanted, found: Mapping[str, Any]) -> tuple[Left, ...]:
    return tuple(
        Left(wanted.kind, wanted.name, field, value)
        for field, value in found.items()
        if field not in wanted.config
        and field not in _NOT_A_SETTING
        and _normal(field, value) is not None
        and value != _DEFAULTS.get(field)
        and not _is_the_servers(field, value)
    )


def _is_the_servers(field: str, value: Any) -> bool:
    return field == "metadata" and all(name.startswith(_OWN_METADATA) for name in value)


def _refusal(wanted: Wanted, change: Change) -> str | None:
    rule = (_STREAM_RULES if wanted.kind is Kind.STREAM else _CONSUMER_RULES).get(change.field)
    if rule is None or not rule.forbids(change):
        return None
    way = rule.way
    if wanted.kind is Kind.CONSUMER:
        way = f"stop what reads with it, remove the consumer ({wanted.name}) and apply again: a receiver's offset is kept"
    return (
        f"{wanted.kind.value} {wanted.name}: {change.field} is {_shown(change.before)}, should be "
        f"{_shown(change.after)}, and cannot be changed in place; {way}"
    )


def _shown(value: Any) -> Any:
    return "not set" if value is None else value


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which changes of a field no server takes, and the way round."""

    forbids: Callable[[Change], bool]
    way: str


def _any(_change: Change) -> bool:
    return True


def _unset(change: Change) -> bool:
    return bool(change.before) and not change.after


def _to_or_from_queue(change: Change) -> bool:
    return "workqueue" in (change.before, change.after)


def _another(change: Change) -> bool:
    return bool(change.after)  # a mirror may be turned into a stream of its own, and never back


_STREAM_RULES: Mapping[str, _Rule] = {
    "storage": _Rule(_any, _MOVE),
    "retention": _Rule(_to_or_from_queue, _RESTORE),
    "sealed": _Rule(_unset, _RESTORE),
    "deny_delete": _Rule(_unset, _RESTORE),
    "deny_purge": _Rule(_unset, _RESTORE),
    "allow_msg_ttl": _Rule(_unset, _RESTORE),
    "allow_msg_schedules": _Rule(_unset, _RESTORE),
    "allow_msg_counter": _Rule(_any, _RESTORE),
    "persist_mode": _Rule(_any, _RESTORE),
    "first_seq": _Rule(_any, "it counts only when a stream is made; leave it out"),
    "mirror": _Rule(
        _another,
        "leave --mirror out where it was promoted; to make a copy of it, remove the stream and apply again",
    ),
}
_CONSUMER_RULES: Mapping[str, _Rule] = {
    field: _Rule(_any, _MAKE_ANEW)
    for field in (
        "deliver_policy",
        "opt_start_seq",
        "opt_start_time",
        "ack_policy",
        "replay_policy",
        "idle_heartbeat",
        "flow_control",
        "deliver_subject",
        "max_waiting",
        "mem_storage",
    )
}
