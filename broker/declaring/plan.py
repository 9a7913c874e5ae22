"""What has to change on a broker so that it is as declared: compares, and decides. Never talks to a server.

Only fields that we declare are compared; a server adds defaults of its own.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.app.printable import printable
from broker.declaring.comparing import Wanted, compare
from broker.declaring.number import number_by
from broker.declaring.steps import Action, Change, Kind, Plan, Step
from broker.topology import Topology, mirrored_site
from broker.wire.descent import is_being_restored
from broker.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    STREAM,
    consumer_config,
    partitions_in,
)
from broker.wire.subjects import Subject, consumer_name

__all__ = ["Actual", "merge", "plan", "plan_entry"]

_OUR_CONSUMER = re.compile(r"receiver-p(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Actual:
    """What is there: configurations by name, the entry of the number of partitions, and what would be harmed.

    `consumers` are those of the stream, `messages` is how many it holds, `offsets` how many partitions have a
    committed offset. `hosts` are the subjects of its lines, known only where that entry says no number.
    """

    streams: Mapping[str, Mapping[str, Any]]
    consumers: Mapping[str, Mapping[str, Any]]
    partitions: str | None
    messages: int
    offsets: int
    hosts: frozenset[Subject] = frozenset()

    @property
    def number(self) -> int | None:
        """The number of partitions that all there is was made by: what the entry says, or else what the rest shows."""
        said = partitions_in(self.partitions)
        numbers = (int(ours[1]) for ours in map(_OUR_CONSUMER.fullmatch, self.consumers) if ours)
        return said or number_by(numbers, self.offsets, self.hosts)


def plan(desired: Topology, actual: Actual) -> Plan:
    """Return what to create, update and remove, in order: streams, consumers, and the number of partitions last.

    Last, since shippers and receivers wait for that entry and then rely on the rest. While something is being restored
    nothing is to be done: to give a stream its subjects would open it with a part of its lines.
    """
    if any(is_being_restored(config) for config in actual.streams.values()):
        return Plan(())
    desired = desired.following(actual.number)
    if desired.mirror is None:  # only who says so ends a copy
        desired = replace(desired, mirror=mirrored_site(actual.streams.get(STREAM, {})))
    streams = [Wanted(Kind.STREAM, config["name"], config) for config in desired.streams()]
    consumers = [
        Wanted(Kind.CONSUMER, consumer_name(number), consumer_config(number), STREAM)
        for number in range(desired.partitions)
    ]
    made = merge((one, actual.streams.get(one.name)) for one in streams)
    of_consumers = merge((one, actual.consumers.get(one.name)) for one in consumers)
    entry = (
        _copied_entry(desired, actual) if desired.mirror else plan_entry(desired.partitions, actual)
    )
    removals = () if entry.refusals else _removals(desired, actual)
    return Plan(
        (*made.steps, *of_consumers.steps, *removals, *entry.steps),
        (*made.refusals, *of_consumers.refusals, *entry.refusals),
        (*made.left, *of_consumers.left),
    )


def merge(pairs: Iterable[tuple[Wanted, Mapping[str, Any] | None]]) -> Plan:
    """Return the plan that makes each thing that is there as it is wanted."""
    differences = [compare(wanted, found) for wanted, found in pairs]
    return Plan(
        tuple(one.step for one in differences if one.step is not None),
        tuple(text for one in differences for text in one.refusals),
        tuple(left for one in differences for left in one.left),
    )


def plan_entry(partitions: int, actual: Actual) -> Plan:
    """Return what to do about the number of partitions: under stored lines or offsets it never changes."""
    before, after = actual.partitions, str(partitions)
    name = f"{CONFIG_BUCKET}/{PARTITIONS_KEY}"
    if before == after:
        return Plan(())
    if actual.number not in {None, partitions} and (actual.messages or actual.offsets):
        return Plan((), (_moved_hosts(after, actual),))
    if before is None:
        return Plan((Step(Action.CREATE, Kind.ENTRY, name, {"value": after}),))
    change = Change("value", printable(before), after)
    return Plan((Step(Action.UPDATE, Kind.ENTRY, name, {"value": after}, (change,)),))


def _copied_entry(desired: Topology, actual: Actual) -> Plan:
    """Return what to do about the number of partitions of a copy: it comes from the other site, sooner or later."""
    there = partitions_in(actual.partitions)
    if there in {None, desired.partitions}:
        return Plan(())
    refusal = (
        f"site {desired.mirror} has {there} partitions, so its copy cannot have {desired.partitions}; "
        f"give --partitions {there}"
    )
    return Plan((), (refusal,))


def _moved_hosts(after: str, actual: Actual) -> str:
    is_said = partitions_in(actual.partitions) is not None
    told = "" if is_said else ", as consumers, offsets and lines show; its entry says none,"
    return (
        f"the number of partitions is {actual.number}{told} and cannot become {after}: hosts would move between partitions, "
        f"out of order, while {STREAM} holds {actual.messages} messages and {actual.offsets} partitions have offsets; "
        f"keep --partitions {actual.number}, or start with an empty store"
    )


def _removals(desired: Topology, actual: Actual) -> tuple[Step, ...]:
    # the stream is empty and nothing was received, or the number is the same: nothing is lost with these
    return tuple(
        Step(Action.REMOVE, Kind.CONSUMER, name, {}, stream=STREAM)
        for name in sorted(actual.consumers)
        if (found := _OUR_CONSUMER.fullmatch(name)) and int(found[1]) >= desired.partitions
    )
