"""What has to change on a broker so that it is as declared: compares, and decides. Never talks to a server.

Only fields that we declare are compared; a server adds defaults of its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from broker.descent import is_being_restored
from broker.subjects import consumer_name
from broker.topology import CONFIG_BUCKET, OFFSETS_BUCKET, PARTITIONS_KEY, STREAM, Topology

__all__ = ["Action", "Actual", "Change", "Kind", "Plan", "Step", "plan"]

_OUR_CONSUMER = re.compile(r"receiver-p(0|[1-9][0-9]*)")


class Kind(Enum):
    """What a step is about."""

    STREAM = "stream"
    CONSUMER = "consumer"
    ENTRY = "entry"


class Action(Enum):
    """What a step does."""

    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do; `config` is whole, as the server takes it, and empty for a removal."""

    action: Action
    kind: Kind
    name: str
    config: Mapping[str, Any]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order to take them; with any refusal, none may be taken."""

    steps: tuple[Step, ...]
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Actual:
    """What is there: configurations by name, the entry of the number of partitions, and what would be harmed.

    `messages` is how many the stream holds, `offsets` how many partitions have a committed offset.
    """

    streams: Mapping[str, Mapping[str, Any]]
    consumers: Mapping[str, Mapping[str, Any]]
    partitions: str | None
    messages: int
    offsets: int


_FIXED = {
    "storage": (
        "cannot be changed in place; back the stream up, remove it, and restore it under the new declaration"
    ),
    "retention": "cannot be changed in place; the stream must keep what receivers have not taken",
    "ack_policy": "cannot be changed in place",
    "deliver_policy": "cannot be changed in place",
    "replay_policy": "cannot be changed in place",
}


def plan(desired: Topology, actual: Actual) -> Plan:
    """Return what to create, update and remove, in order: streams, consumers, and the number of partitions last.

    Last, since shippers and receivers wait for that entry and then rely on the rest. While something is being restored
    nothing is to be done: to give a stream its subjects would open it with a part of its lines.
    """
    if any(is_being_restored(config) for config in actual.streams.values()):
        return Plan(())
    steps: list[Step] = []
    refusals: list[str] = []
    for config in desired.streams():
        _compare(Kind.STREAM, config["name"], config, actual.streams, steps, refusals)
    for partition in range(desired.partitions):
        name = consumer_name(partition)
        _compare(
            Kind.CONSUMER, name, desired.consumer(partition), actual.consumers, steps, refusals
        )
    refusal = _refuse_partitions(desired, actual)
    if refusal:
        refusals.append(refusal)
    else:
        steps.extend(_removals(desired, actual))
        steps.extend(_entry(desired, actual))
    return Plan(tuple(steps), tuple(refusals))


def _compare(
    kind: Kind,
    name: str,
    config: Mapping[str, Any],
    there: Mapping[str, Mapping[str, Any]],
    steps: list[Step],
    refusals: list[str],
) -> None:
    if name not in there:
        steps.append(Step(Action.CREATE, kind, name, config))
        return
    found = there[name]
    changes = tuple(
        Change(field, found.get(field), value)
        for field, value in config.items()
        if found.get(field) != value
    )
    fixed = [change for change in changes if change.field in _FIXED]
    refusals.extend(
        f"{kind.value} {name}: {change.field} is {change.before}, should be {change.after}, and "
        f"{_FIXED[change.field]}{_way_round(kind, name)}"
        for change in fixed
    )
    if changes and not fixed:
        steps.append(Step(Action.UPDATE, kind, name, {**found, **config}, changes))


def _way_round(kind: Kind, name: str) -> str:
    if kind is not Kind.CONSUMER:
        return ""
    return f"; stop its receiver, remove the consumer ({name}) and apply again: its offset is kept in {OFFSETS_BUCKET}"


def _refuse_partitions(desired: Topology, actual: Actual) -> str | None:
    before, after = actual.partitions, str(desired.partitions)
    if before is None or before == after or not (actual.messages or actual.offsets):
        return None
    return (
        f"the number of partitions is {before} and cannot become {after}: hosts would move between partitions, "
        f"out of order, while {STREAM} holds {actual.messages} messages and {actual.offsets} partitions have offsets; "
        f"keep --partitions {before}, or start with an empty store"
    )


def _removals(desired: Topology, actual: Actual) -> list[Step]:
    # the stream is empty and nothing was received, or the number is the same: nothing is lost with these
    return [
        Step(Action.REMOVE, Kind.CONSUMER, name, {})
        for name in sorted(actual.consumers)
        if (found := _OUR_CONSUMER.fullmatch(name)) and int(found[1]) >= desired.partitions
    ]


def _entry(desired: Topology, actual: Actual) -> list[Step]:
    before, after = actual.partitions, str(desired.partitions)
    name = f"{CONFIG_BUCKET}/{PARTITIONS_KEY}"
    if before is None:
        return [Step(Action.CREATE, Kind.ENTRY, name, {"value": after})]
    if before == after:
        return []
    change = Change("value", before, after)
    return [Step(Action.UPDATE, Kind.ENTRY, name, {"value": after}, (change,))]
