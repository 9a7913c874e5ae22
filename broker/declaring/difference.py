"""A plan as people read it: one line per step, and what differs below it."""

from datetime import timedelta
from typing import Any

from broker.declaring.plan import Action, Change, Plan, Step
from broker.durations import format_duration

__all__ = ["describe"]

_SIGNS = {Action.CREATE: "+", Action.UPDATE: "~", Action.REMOVE: "-"}
_LENGTHS = frozenset({"max_age", "duplicate_window", "ack_wait"})


def describe(plan: Plan) -> str:
    """Return the plan as text; `nothing to do` when it is empty."""
    lines = [line for step in plan.steps for line in _describe(step)]
    return "\n".join(lines) or "nothing to do"


def _describe(step: Step) -> list[str]:
    head = f"{_SIGNS[step.action]} {step.action.value} {step.kind.value} {step.name}"
    return [head, *(f"    {_difference(change)}" for change in step.changes)]


def _difference(change: Change) -> str:
    before, after = (_shown(change.field, value) for value in (change.before, change.after))
    return f"- {change.field}: {before}  + {change.field}: {after}"


def _shown(field: str, value: Any) -> str:
    if field in _LENGTHS and isinstance(value, int):
        return format_duration(timedelta(microseconds=value // 1000))
    return "not set" if value is None else str(value)
