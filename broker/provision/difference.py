"""A plan as people read it: one line per step, and what differs below it."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from broker.app.durations import format_duration
from broker.app.printable import printable
from broker.provision.deletion import Loss
from broker.provision.steps import Action, Change, Left, Plan, Step

__all__ = ["describe", "describe_left", "is_shown", "shown"]

_SIGNS = {Action.CREATE: "+", Action.UPDATE: "~", Action.REMOVE: "-"}
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


def describe_left(left: Iterable[Left]) -> str:
    """Return the fields that stay as somebody set them, a line each."""
    lines = [
        f"= {one.kind.value} {one.name} keeps {one.field}: {shown(one.field, one.value)}, "
        "which is not declared"
        for one in left
    ]
    return "\n".join(map(printable, lines))


def _describe(step: Step, losses: list[Loss]) -> list[str]:
    head = f"{_SIGNS[step.action]} {step.action.value} {step.kind.value} {step.name}"
    changes = [f"    {_difference(change)}" for change in step.changes if is_shown(change)]
    deleted = [f"    ! {loss.words}" for loss in losses if loss.step == step]
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
