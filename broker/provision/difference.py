"""A plan as people read it: one line per step, and what differs below it; and what they should know of what they declare."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from broker.app.units import format_duration
from broker.app.untrusted import printable
from broker.provision.steps import Action, Change, Loss, Plan, Step
from broker.topology import Topology

__all__ = ["as_json", "cautions", "describe", "is_shown", "shown"]

_SIGNS = {Action.CREATE: "+", Action.UPDATE: "~"}
_LENGTHS = frozenset(
    {"max_age", "duplicate_window", "ack_wait", "inactive_threshold", "max_expires"}
    | {"subject_delete_marker_ttl", "idle_heartbeat", "priority_timeout"}
)
_SHOWN = 10  # of a list, such as the subjects of all partitions


def describe(plan: Plan, losses: Iterable[Loss] = ()) -> str:
    """Return the plan as text, with what it would delete; `nothing to do` when it is empty."""
    held = list(losses)
    lines = [line for step in plan.steps for line in _describe(step, held)]
    return "\n".join(map(printable, lines)) or "nothing to do"


def as_json(plan: Plan, losses: Iterable[Loss] = ()) -> list[dict[str, Any]]:
    """Return the steps of a plan for programs."""
    held = list(losses)
    return [
        {
            "action": step.action.value,
            "kind": step.kind.value,
            "name": step.name,
            "stream": step.stream or None,
            "changes": {
                one.field: {"before": one.before, "after": one.after} for one in step.changes
            },
            "deletes": [loss.reason for loss in held if loss.step == step],
        }
        for step in plan.steps
    ]


def _describe(step: Step, losses: list[Loss]) -> list[str]:
    head = f"{_SIGNS[step.action]} {step.action.value} {step.kind.value} {step.name}"
    changes = [f"    {_difference(change)}" for change in step.changes if is_shown(change)]
    deleted = [f"    ! {loss.reason}" for loss in losses if loss.step == step]
    return [head, *changes, *deleted]


def _difference(change: Change) -> str:
    before, after = (shown(change.field, value) for value in (change.before, change.after))
    return f"- {change.field}: {before}  + {change.field}: {after}"


def is_shown(change: Change) -> bool:
    """Whether people see a difference: not in metadata that logbroker keeps for itself."""
    return shown(change.field, change.before) != shown(change.field, change.after)


def shown(field: str, value: Any) -> str:
    """Return the value of a field in people's units."""
    if field in _LENGTHS and isinstance(value, int):
        return format_duration(timedelta(microseconds=value // 1000))
    if isinstance(value, dict):
        own = {
            name: one for name, one in value.items() if not name.startswith(("_nats.", "logship."))
        }
        value = ", ".join(f"{name}={shown(name, one)}" for name, one in own.items())
    if isinstance(value, list):
        more = len(value) - _SHOWN
        value = ",".join(map(str, value[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return "not set" if value in (None, "") else str(value)


def cautions(topology: Topology) -> tuple[str, ...]:
    """Return which promises a declaration breaks that we keep otherwise: allowed, and logged."""
    found = {
        "discard = old: a full stream lets its oldest lines go, received or not; receivers report the gaps": (
            topology.discard == "old"
        ),
        f"streams = {topology.stream_count}: with {topology.partitions} partitions some of them stay empty": (
            topology.stream_count > topology.partitions
        ),
        f"replicas = {topology.replicas}: no more servers may fail than with {(topology.replicas or 1) - 1}": (
            topology.replicas in (2, 4)
        ),
    }
    return tuple(words for words, applies in found.items() if applies)
