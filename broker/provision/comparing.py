"""How a configuration differs from the one that is there: what can be updated, what cannot, what is nobody's. Decides only.

What a server takes as an update was tried with nats-server 2.15.1, field by field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.provision.steps import Action, Change, Kind, Step

__all__ = ["Difference", "Wanted", "compare"]

_MOVE = "back it up (logbroker backup), start on an empty store with the new setting, and restore it (logbroker restore)"

_NO_MIRROR = "leave --mirror out where it was promoted; to make a copy of it, remove the stream and apply again"
_FIXED_OF_CONSUMERS = frozenset(
    {
        *("deliver_policy", "opt_start_seq", "opt_start_time", "ack_policy", "replay_policy"),
        *("idle_heartbeat", "flow_control", "deliver_subject", "max_waiting", "mem_storage"),
    }
)
_UNBOUNDED = frozenset(
    {"max_age", "max_bytes", "max_msgs", "max_msg_size", "max_msgs_per_subject", "max_consumers"}
    | {"max_deliver", "max_ack_pending"}
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be there: a stream, a bucket's stream, or the consumer of a stream."""

    kind: Kind
    name: str
    config: Mapping[str, Any]
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """What to do about one of these, or why that cannot be done."""

    step: Step | None
    refusals: tuple[str, ...] = ()


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
    refusals = tuple(text for change in changes if (text := _refusal(wanted, change)))
    if refusals or not changes:
        return Difference(None, refusals)
    config = {**found, **{change.field: change.after for change in changes}}
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    step = Step(Action.UPDATE, wanted.kind, wanted.name, kept, changes, wanted.stream)
    return Difference(step)


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


def _refusal(wanted: Wanted, change: Change) -> str | None:
    """Return why a field cannot be changed, with the way round; other fields that no server changes it refuses itself."""
    match wanted.kind, change.field:
        case Kind.STREAM, "storage":
            way = _MOVE
        case Kind.STREAM, "mirror" if (
            change.after
        ):  # a mirror becomes a stream of its own, and never the other way
            way = _NO_MIRROR
        case Kind.CONSUMER, field if field in _FIXED_OF_CONSUMERS:
            way = f"stop its receiver, remove the consumer ({wanted.name}) and apply again: a receiver's offset is kept"
        case _:
            return None
    before = "not set" if change.before is None else change.before
    return (
        f"{wanted.kind.value} {wanted.name}: {change.field} is {before}, should be {change.after}, "
        f"and cannot be changed in place; {way}"
    )
