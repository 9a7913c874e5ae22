"""What a plan would delete, and the plan without that.

A stream deletes at once what a lowered limit leaves no room for: what is too old and what a host has too much in any case,
messages and bytes beyond a limit only where it discards old ones. Tried with nats-server 2.15.1.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from broker.app.units import format_size
from broker.client.connection import Connection
from broker.provision.steps import Action, Loss, Plan, ResourceKind, Step

__all__ = ["losses_of", "without"]


async def losses_of(connection: Connection, plan: Plan) -> tuple[Loss, ...]:
    """Return what the steps of a plan would delete now; raises `Rejected`, `ConnectionLost`."""
    found: list[Loss] = []
    for step in plan.steps:
        if step.kind is ResourceKind.STREAM and step.action is Action.UPDATE and any(_cuts(step)):
            info = await connection.api(f"STREAM.INFO.{step.name}")
            found += [Loss(step, fields, reason) for fields, reason in _cut_now(step, info)]
    return tuple(found)


def without(plan: Plan, losses: Iterable[Loss]) -> Plan:
    """Return the plan without what would delete something: those fields stay."""
    held = list(losses)
    steps = []
    for step in plan.steps:
        fields = {field for loss in held if loss.step == step for field in loss.fields}
        changes = tuple(change for change in step.changes if change.field not in fields)
        before = {change.field: change.before for change in step.changes if change.field in fields}
        config = {
            field: value for field, value in {**step.config, **before}.items() if value is not None
        }
        if changes or not fields:
            steps.append(replace(step, config=config, changes=changes))
    return replace(plan, steps=tuple(steps))


def _cuts(step: Step) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return each limit that may delete something, with the fields that change it."""
    before = {change.field: _limit(change.before) for change in step.changes}
    discards = step.config.get("discard", "old") == "old"
    for field, beside in _BESIDE.items():
        limit = _limit(step.config.get(field))
        is_lower = field in before and bool(limit) and not 0 < before[field] <= limit
        begins_to_discard = beside == "discard" and "discard" in before and bool(limit)
        if (is_lower or begins_to_discard) and (discards or beside != "discard"):
            yield field, tuple(one for one in (field, beside) if one in before)
    if "retention" in before and step.config.get("retention") == "interest":
        yield "retention", ("retention",)


_BESIDE = {
    "max_age": "",
    "max_msgs_per_subject": "discard_new_per_subject",
    "max_msgs": "discard",
    "max_bytes": "discard",
}
"""The limits of a stream, each with the field that decides whether it deletes."""


def _cut_now(step: Step, info: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    state = info["state"]
    held = state["messages"]
    for field, fields in _cuts(step) if held else ():
        limit = _limit(step.config.get(field))
        match field:
            case "max_age":
                # the server's own clock decides what expires
                begin = datetime.fromisoformat(info["ts"]) - timedelta(microseconds=limit // 1000)
                if datetime.fromisoformat(state["first_ts"]) < begin:
                    yield fields, f"deletes what is from before {begin:%Y-%m-%dT%H:%M:%SZ}"
            case "max_msgs" if held > limit:
                yield fields, f"deletes the oldest {held - limit} of {held} messages"
            case "max_bytes" if state["bytes"] > limit:
                yield fields, f"deletes the oldest {format_size(state['bytes'] - limit)}"
            case "max_msgs_per_subject" if held > limit:
                yield fields, f"deletes all but the newest {limit} messages of each host"
            case "retention":
                yield fields, f"deletes whatever no consumer waits for, of {held} messages"
            case _:
                pass


def _limit(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
