"""Steps: what makes a configuration that is there as it is wanted, what that would delete, and how people read it. Decides only.

What nats-server (2.15.1) deletes when a limit is lowered was tried: what is too old and what a host has too much in any case,
messages and bytes beyond a limit only where the stream discards old ones. What it cannot change in place it refuses itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from broker.app.units import format_duration, format_size
from broker.app.untrusted import printable

__all__ = [
    "Change",
    "Loss",
    "ResourceKind",
    "Step",
    "as_json",
    "compare",
    "describe",
    "losses_in",
    "shown",
    "visible",
    "without",
]

_UNBOUNDED = frozenset(
    {"max_age", "max_bytes", "max_msgs", "max_msg_size", "max_msgs_per_subject", "max_consumers"}
    | {"max_deliver", "max_ack_pending"}
)
_LENGTHS = frozenset(
    {"max_age", "duplicate_window", "ack_wait", "inactive_threshold", "max_expires"}
    | {"subject_delete_marker_ttl", "idle_heartbeat", "priority_timeout"}
)
_SIZES = frozenset({"max_bytes", "max_msg_size"})
_SHOWN = 10  # of a list, such as the subjects of all partitions


class ResourceKind(Enum):
    """What a step is about."""

    STREAM = "stream"
    CONSUMER = "consumer"
    ENTRY = "entry"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to create, or, where `changes` say how, to update; `config` is whole, as the server takes it.

    `stream` is the one that a consumer belongs to.
    """

    kind: ResourceKind
    name: str
    config: Mapping[str, Any]
    stream: str = ""
    changes: tuple[Change, ...] = ()

    @property
    def action(self) -> str:
        """What the step does: `create` or `update`."""
        return "update" if self.changes else "create"


@dataclass(frozen=True, slots=True)
class Loss:
    """What some fields of a step would delete, for a person."""

    step: Step
    fields: tuple[str, ...]
    reason: str


def compare(wanted: Step, found: Mapping[str, Any] | None) -> tuple[Step, ...]:
    """Return what makes `found` as wanted; only fields that are wanted are compared, all others stay."""
    if found is None:
        return (wanted,)
    changes = []
    for field, value in wanted.config.items():
        before = found.get(field)
        # of metadata, which several may write to, only the names that are given are ours
        after = {**(before or {}), **(value or {})} if field == "metadata" else value
        if _normal(field, before) != _normal(field, after):
            changes.append(Change(field, before, after))
    if not changes:
        return ()
    config = {**found, **{change.field: change.after for change in changes}}
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    return (replace(wanted, config=kept, changes=tuple(changes)),)


def _normal(field: str, value: Any) -> Any:
    if field in _UNBOUNDED and isinstance(value, int) and value <= 0:
        return None
    if field == "persist_mode" and value == "default":
        return None
    return value or None  # a server leaves out what is false, empty or nothing


def losses_in(step: Step, info: Mapping[str, Any]) -> Iterator[Loss]:
    """Yield what the update of a stream would delete now; `info` is the answer to STREAM.INFO."""
    state, changed = info["state"], {change.field for change in step.changes}
    if not state["messages"]:
        return
    if "max_age" in changed and (age := int(step.config.get("max_age") or 0)) > 0:
        # the server's own clock decides what expires
        begin = datetime.fromisoformat(info["ts"]) - timedelta(microseconds=age // 1000)
        if datetime.fromisoformat(state["first_ts"]) < begin:
            yield Loss(
                step, ("max_age",), f"deletes what is from before {begin:%Y-%m-%dT%H:%M:%SZ}"
            )
    limits = [("max_msgs_per_subject", state["messages"])]
    if step.config.get("discard", "old") == "old":
        limits += [("max_msgs", state["messages"]), ("max_bytes", state["bytes"])]
    for field, held in limits:
        limit = int(step.config.get(field) or 0)
        fields = tuple(sorted(changed & {field, "discard"}, reverse=True))
        if fields and 0 < limit < held:
            there, most = shown(field, held), shown(field, limit)
            yield Loss(step, fields, f"deletes the oldest beyond {field} {most}: {there} are there")


def without(steps: Iterable[Step], losses: Sequence[Loss]) -> tuple[Step, ...]:
    """Return the steps without what would delete something: those fields stay."""
    kept = []
    for step in steps:
        held = {field for loss in losses if loss.step == step for field in loss.fields}
        changes = tuple(change for change in step.changes if change.field not in held)
        before = {change.field: change.before for change in step.changes if change.field in held}
        config = {name: one for name, one in {**step.config, **before}.items() if one is not None}
        if changes or not held:
            kept.append(replace(step, config=config, changes=changes))
    return tuple(kept)


def describe(steps: Iterable[Step], losses: Sequence[Loss] = ()) -> str:
    """Return a plan as text: a line for each step, and what differs and what it would delete below it."""
    lines = []
    for step in steps:
        sign = "~" if step.changes else "+"
        lines.append(f"{sign} {step.action} {step.kind.value} {step.name}")
        for field, before, after in visible(step):
            lines.append(f"    - {field}: {before}  + {field}: {after}")
        lines += [f"    ! {loss.reason}" for loss in losses if loss.step == step]
    return "\n".join(map(printable, lines)) or "nothing to do"


def as_json(steps: Iterable[Step], losses: Sequence[Loss] = ()) -> list[dict[str, Any]]:
    """Return a plan for programs."""
    return [
        {
            "action": step.action,
            "kind": step.kind.value,
            "name": step.name,
            "stream": step.stream or None,
            "changes": {
                one.field: {"before": one.before, "after": one.after} for one in step.changes
            },
            "deletes": [loss.reason for loss in losses if loss.step == step],
        }
        for step in steps
    ]


def visible(step: Step) -> Iterator[tuple[str, str, str]]:
    """Yield each field that people see a difference of, before and after: not metadata that logbroker keeps for itself."""
    for change in step.changes:
        before, after = (shown(change.field, value) for value in (change.before, change.after))
        if before != after:
            yield change.field, before, after


def shown(field: str, value: Any) -> str:
    """Return the value of a field in people's units."""
    if field in _LENGTHS and isinstance(value, int):
        return format_duration(timedelta(microseconds=value // 1000))
    if field in _SIZES and isinstance(value, int) and value > 0:
        return format_size(value)
    if isinstance(value, dict):
        own = (name for name in value if not name.startswith(("_nats.", "logship.")))
        value = ", ".join(f"{name}={shown(name, value[name])}" for name in own)
    if isinstance(value, list):
        more = len(value) - _SHOWN
        value = ",".join(map(str, value[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return "not set" if value in (None, "") else str(value)
