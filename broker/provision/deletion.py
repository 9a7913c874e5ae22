"""What a plan would delete, as questions to the broker, and the plan without what deletes. Decides; never asks by itself.

A stream lets go at once of what a lowered limit leaves no room for: of what is too old and of what a host has too
much in any case, of messages and bytes beyond a limit only where it discards old ones. Tried with nats-server 2.15.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from broker.provision.steps import Action, Kind, Plan, Step

__all__ = ["Cut", "Loss", "Question", "questions", "without"]


class Cut(Enum):
    """What a change may delete."""

    AGE = "older than"
    MESSAGES = "messages beyond"
    BYTES = "bytes beyond"
    PER_SUBJECT = "messages of a subject beyond"
    UNWANTED = "what no consumer waits for"
    POSITION = "a consumer's position"


@dataclass(frozen=True, slots=True)
class Question:
    """Whether some fields of a step delete anything; `limit` is in the unit of its field, nanoseconds for an age."""

    step: Step
    fields: tuple[str, ...]
    cut: Cut
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """What some fields of a step would delete, in words for a person."""

    step: Step
    fields: tuple[str, ...]
    words: str


def questions(made: Plan) -> tuple[Question, ...]:
    """Return what has to be asked of the broker to know what a plan deletes."""
    return tuple(question for step in made.steps for question in _of(step))


def without(made: Plan, losses: Iterable[Loss]) -> Plan:
    """Return the plan as it is without what would be lost by it: those fields stay, and those consumers."""
    held = list(losses)
    steps = (_without(step, [loss for loss in held if loss.step == step]) for step in made.steps)
    return replace(made, steps=tuple(step for step in steps if step is not None))


def _without(step: Step, losses: list[Loss]) -> Step | None:
    if not losses:
        return step
    fields = {field for loss in losses for field in loss.fields}
    changes = tuple(change for change in step.changes if change.field not in fields)
    if not changes:
        return None
    stay = {change.field: change.before for change in step.changes if change.field in fields}
    config = {field: value for field, value in {**step.config, **stay}.items() if value is not None}
    return replace(step, config=config, changes=changes)


def _of(step: Step) -> list[Question]:
    match step.kind, step.action:
        case Kind.CONSUMER, Action.REMOVE:
            return [Question(step, (), Cut.POSITION)]
        case Kind.STREAM, Action.UPDATE:
            return _of_limits(step)
        case _:
            return []


def _of_limits(step: Step) -> list[Question]:
    changed = {change.field for change in step.changes}
    before = {change.field: change.before for change in step.changes}
    found: list[Question] = []

    def ask(cut: Cut, field: str, *with_it: str) -> None:
        fields = tuple(one for one in (field, *with_it) if one in changed)
        found.append(Question(step, fields, cut, _limit(step.config.get(field))))

    def is_lower(field: str) -> bool:
        old, new = _limit(before.get(field)), _limit(step.config.get(field))
        return field in changed and bool(new) and (not old or new < old)

    if is_lower("max_age"):
        ask(Cut.AGE, "max_age")
    if is_lower("max_msgs_per_subject"):
        ask(Cut.PER_SUBJECT, "max_msgs_per_subject", "discard_new_per_subject")
    for cut, field in ((Cut.MESSAGES, "max_msgs"), (Cut.BYTES, "max_bytes")):
        gives_way = step.config.get("discard", "old") == "old"
        matters = is_lower(field) or ("discard" in changed and _limit(step.config.get(field)))
        if gives_way and matters:
            ask(cut, field, "discard")
    if "retention" in changed and step.config.get("retention") == "interest":
        ask(Cut.UNWANTED, "retention")
    return found


def _limit(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
