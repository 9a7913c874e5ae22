"""What a plan would delete, and the plan without that.

A stream deletes at once what a lowered limit leaves no room for: what is too old and what a host has too much in any case,
messages and bytes beyond a limit only where it discards old ones. Tried with nats-server 2.15.1.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from broker.app.units import format_size
from broker.client.connection import Connection
from broker.provision.steps import Action, Kind, Loss, Plan, Step

__all__ = ["losses_of", "without"]


async def losses_of(connection: Connection, plan: Plan) -> tuple[Loss, ...]:
    """Return what the steps of a plan would delete now; raises `Rejected`, `ConnectionLost`."""
    found = await asyncio.gather(*(_losses(connection, step) for step in plan.steps))
    return tuple(loss for one in found for loss in one)


def without(plan: Plan, losses: Iterable[Loss]) -> Plan:
    """Return the plan without what would delete something: those fields stay, and those consumers."""
    held = list(losses)
    steps = (_without(step, [loss for loss in held if loss.step == step]) for step in plan.steps)
    return replace(plan, steps=tuple(step for step in steps if step is not None))


def _without(step: Step, losses: list[Loss]) -> Step | None:
    fields = {field for loss in losses for field in loss.fields}
    changes = tuple(change for change in step.changes if change.field not in fields)
    if losses and not changes:
        return None
    before = {change.field: change.before for change in step.changes if change.field in fields}
    config = {
        field: value for field, value in {**step.config, **before}.items() if value is not None
    }
    return replace(step, config=config, changes=changes)


async def _losses(connection: Connection, step: Step) -> list[Loss]:
    match step.kind, step.action:
        case Kind.CONSUMER, Action.REMOVE:
            info = await connection.api(f"CONSUMER.INFO.{step.stream}.{step.name}")
            reached = int(info["delivered"]["stream_seq"])
            return [Loss(step, (), f"forgets that it has come to {reached}")] if reached else []
        case Kind.STREAM, Action.UPDATE:
            if not any(_cuts(step)):
                return []
            info = await connection.api(f"STREAM.INFO.{step.name}")
            return [Loss(step, fields, reason) for fields, reason in _cut_now(step, info)]
        case _:
            return []


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
