"""What a plan is made of, and how it comes about: a configuration that is wanted, compared with the one that is there.

What a server takes as an update was tried with nats-server 2.15.1, field by field. Decides only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = [
    "Action",
    "Change",
    "Loss",
    "Plan",
    "ResourceKind",
    "Step",
    "Wanted",
    "compare",
    "compare_all",
    "join_plans",
]

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


class ResourceKind(Enum):
    """What a step is about."""

    STREAM = "stream"
    CONSUMER = "consumer"
    ENTRY = "entry"


class Action(Enum):
    """What a step does."""

    CREATE = "create"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do; `config` is whole, as the server takes it.

    `stream` is the one that a consumer belongs to.
    """

    action: Action
    kind: ResourceKind
    name: str
    config: Mapping[str, Any]
    changes: tuple[Change, ...] = ()
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """What some fields of a step would delete, for a person."""

    step: Step
    fields: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order to take them; with any refusal, none may be taken."""

    steps: tuple[Step, ...]
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be there: a stream, a bucket's stream, or the consumer of a stream."""

    kind: ResourceKind
    name: str
    config: Mapping[str, Any]
    stream: str = ""


def compare(wanted: Wanted, found: Mapping[str, Any] | None) -> Plan:
    """Return what makes `found` as wanted; only fields that are wanted are compared, all others stay."""
    if found is None:
        step = Step(Action.CREATE, wanted.kind, wanted.name, wanted.config, stream=wanted.stream)
        return Plan((step,))
    pairs = ((field, found.get(field), value) for field, value in wanted.config.items())
    merged = (
        Change(field, before, _merged(field, before, after)) for field, before, after in pairs
    )
    changes = tuple(one for one in merged if not _is_same(one))
    refusals = tuple(text for change in changes if (text := _refusal(wanted, change)))
    if refusals or not changes:
        return Plan((), refusals)
    config = {**found, **{change.field: change.after for change in changes}}
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    return Plan((Step(Action.UPDATE, wanted.kind, wanted.name, kept, changes, wanted.stream),))


def compare_all(pairs: Iterable[tuple[Wanted, Mapping[str, Any] | None]]) -> Plan:
    """Return the plan that makes each thing that is there as it is wanted."""
    return join_plans(compare(wanted, found) for wanted, found in pairs)


def join_plans(plans: Iterable[Plan]) -> Plan:
    """Return one plan of several, in their order."""
    made = list(plans)
    return Plan(
        tuple(step for one in made for step in one.steps),
        tuple(text for one in made for text in one.refusals),
    )


def _merged(field: str, before: Any, after: Any) -> Any:
    """Return what a field becomes: of metadata, which several may write to, only the names that are given are ours."""
    return {**(before or {}), **(after or {})} if field == "metadata" else after


def _is_same(change: Change) -> bool:
    return bool(_normal(change.field, change.before) == _normal(change.field, change.after))


def _normal(field: str, value: Any) -> Any:
    if field in _UNBOUNDED and isinstance(value, int) and value <= 0:
        return None
    if field == "persist_mode" and value == "default":
        return None
    return value or None  # a server leaves out what is false, empty or nothing


def _refusal(wanted: Wanted, change: Change) -> str | None:
    """Return why a field cannot be changed, with the way round; other fields that no server changes it refuses itself."""
    match wanted.kind, change.field:
        case ResourceKind.STREAM, "storage":
            way = _MOVE
        case ResourceKind.STREAM, "mirror" if (
            change.after
        ):  # a mirror becomes a stream of its own, and never the other way
            way = _NO_MIRROR
        case ResourceKind.CONSUMER, field if field in _FIXED_OF_CONSUMERS:
            way = f"stop its receiver, remove the consumer ({wanted.name}) and apply again: a receiver's offset is kept"
        case _:
            return None
    before = "not set" if change.before is None else change.before
    return (
        f"{wanted.kind.value} {wanted.name}: {change.field} is {before}, should be {change.after}, "
        f"and cannot be changed in place; {way}"
    )
