"""What has to change on a broker so that it is as declared: compares, and decides. Never talks to a server.

Only fields that we declare are compared; a server adds defaults of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.app.printable import printable
from broker.provision.comparing import Wanted, compare
from broker.provision.steps import Action, Change, Kind, Plan, Step
from broker.topology import Topology, mirrored_site
from broker.wire.descent import is_being_restored
from broker.wire.streams import (
    CONFIG_BUCKET,
    MAX_PARTITIONS,
    PARTITIONS_KEY,
    STREAMS_KEY,
    StreamLayout,
    consumer_config,
    existing_in,
    partitions_in,
    stream_names,
    stream_of,
    subjects_in,
)
from broker.wire.subjects import consumer_name

__all__ = ["Actual", "merge", "plan", "plan_entry", "plan_partitions", "plan_streams"]


@dataclass(frozen=True, slots=True)
class Actual:
    """What is there: configurations by name, the entries of the numbers of partitions and streams, and what would be harmed.

    `consumers` are those of all streams, `messages` is how many these hold, `offsets` how many partitions have a
    committed offset. `stream_count` is how many streams there are, None where there is none and no entry.
    """

    streams: Mapping[str, Mapping[str, Any]]
    consumers: Mapping[str, Mapping[str, Any]]
    partitions: str | None
    messages: int
    offsets: int
    streams_entry: str | None = None
    stream_count: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams that partitions live in."""
        return stream_names(self.stream_count or 1)

    @property
    def number(self) -> int | None:
        """How many partitions hosts are spread over: what the entry says, or else how many exist, or have offsets."""
        offsets = min(self.offsets, MAX_PARTITIONS)
        return partitions_in(self.partitions) or self.existing or offsets or None

    @property
    def existing(self) -> int:
        """The number below which all partitions are that have a consumer or a subject of a stream."""
        subjects = [
            subject
            for name in self.names
            for subject in self.streams.get(name, {}).get("subjects") or ()
        ]
        return existing_in([*self.consumers, *subjects])


def plan(desired: Topology, actual: Actual) -> Plan:
    """Return what to create, update and remove, in order: the number of streams, streams, consumers, the number of partitions.

    The number of streams comes first: whatever becomes of the rest, the next start goes on with that number. The number of
    partitions comes last, since shippers and receivers wait for that entry and then rely on the rest. While something is being restored
    nothing is to be done: to give a stream its subjects would open it with a part of its lines.
    """
    if any(is_being_restored(config) for config in actual.streams.values()):
        return Plan(())
    desired = desired.following(actual.number, actual.stream_count)
    number = plan_streams(desired.stream_count, actual)
    if number.refusals:
        return number
    if actual.messages or actual.offsets:  # partitions that hosts have left are still received
        desired = replace(desired, existing=actual.existing)
    if desired.mirror is None:  # only who says so ends a copy
        desired = replace(desired, mirror=_site_of(actual))
    streams = [Wanted(Kind.STREAM, config["name"], config) for config in desired.streams()]
    made = merge((one, actual.streams.get(one.name)) for one in streams)
    of_consumers = _consumers(StreamLayout(desired.all_partitions, desired.stream_count), actual)
    entry = (
        _copied_entry(desired, actual) if desired.mirror else plan_entry(desired.partitions, actual)
    )
    return Plan(
        (
            *(() if desired.mirror else number.steps),
            *made.steps,
            *of_consumers.steps,
            *_removals(desired, actual),
            *entry.steps,
        ),
        (*made.refusals, *of_consumers.refusals, *entry.refusals),
    )


def plan_partitions(partitions: int, actual: Actual) -> Plan:
    """Return what spreads hosts over another number of partitions, whatever the stream holds: nothing is removed.

    The entry comes last: from then on shippers go over to their host's new subject, and say on the old one that they did.
    """
    count = max(partitions, actual.existing)
    layout = StreamLayout(count, len(actual.names))
    made = merge(
        (Wanted(Kind.STREAM, name, {"subjects": _subjects(name, layout, found)}), found)
        for name in actual.names
        if (found := actual.streams[name])
    )
    consumers = _consumers(layout, actual)
    return Plan(
        (*made.steps, *consumers.steps, *_entry_steps(partitions, actual)),
        (*made.refusals, *consumers.refusals),
    )


def _subjects(name: str, layout: StreamLayout, found: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys((*(found.get("subjects") or ()), *subjects_in(name, layout))))


def _site_of(actual: Actual) -> str | None:
    """Return the site of which the streams that are there are copies, if any."""
    there = [actual.streams[name] for name in actual.names if name in actual.streams]
    return mirrored_site(there[0]) if there else None


def _consumers(layout: StreamLayout, actual: Actual) -> Plan:
    wanted = [
        Wanted(
            Kind.CONSUMER, consumer_name(number), consumer_config(number), layout.stream_of(number)
        )
        for number in range(layout.partitions)
    ]
    return merge((one, actual.consumers.get(one.name)) for one in wanted)


def merge(pairs: Iterable[tuple[Wanted, Mapping[str, Any] | None]]) -> Plan:
    """Return the plan that makes each thing that is there as it is wanted."""
    differences = [compare(wanted, found) for wanted, found in pairs]
    return Plan(
        tuple(one.step for one in differences if one.step is not None),
        tuple(text for one in differences for text in one.refusals),
    )


def plan_entry(partitions: int, actual: Actual) -> Plan:
    """Return what to do about the number of partitions: under stored lines or offsets only a command of its own changes it."""
    is_held = bool(actual.messages or actual.offsets)
    if is_held and not _agrees(partitions, actual):
        return Plan((), (_moved_hosts(partitions, actual),))
    return Plan(_entry_steps(partitions, actual))


def _agrees(partitions: int, actual: Actual) -> bool:
    said = partitions_in(actual.partitions)
    # where the entry is gone the number may have been smaller than how many exist
    return partitions == said if said else partitions <= (actual.number or partitions)


def _entry_steps(partitions: int, actual: Actual) -> tuple[Step, ...]:
    return _entry_step(PARTITIONS_KEY, actual.partitions, str(partitions))


def plan_streams(streams: int, actual: Actual) -> Plan:
    """Return what to do about the number of streams: it is written once, and never changes."""
    if actual.stream_count not in {None, streams}:
        return Plan((), (_other_streams(streams, actual),))
    return Plan(_entry_step(STREAMS_KEY, actual.streams_entry, str(streams)))


def _entry_step(key: str, before: str | None, after: str) -> tuple[Step, ...]:
    name = f"{CONFIG_BUCKET}/{key}"
    if before == after:
        return ()
    if before is None:
        return (Step(Action.CREATE, Kind.ENTRY, name, {"value": after}),)
    change = Change("value", printable(before), after)
    return (Step(Action.UPDATE, Kind.ENTRY, name, {"value": after}, (change,)),)


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


def _other_streams(streams: int, actual: Actual) -> str:
    return (
        f"the number of streams is {actual.stream_count} and not {streams}: it is fixed at the first start; give --streams "
        f"{actual.stream_count}, or leave it out. For another number have receivers receive all that there is, "
        "`logbroker backup`, start on a new --store-dir, and restore KV_LOGS_POSITIONS there (docs/broker.md, Streams)"
    )


def _moved_hosts(after: int, actual: Actual) -> str:
    is_said = partitions_in(actual.partitions) is not None
    told = "" if is_said else ", as consumers, subjects and offsets show; its entry says none,"
    return (
        f"the number of partitions is {actual.number}{told} and not {after}: {_named(actual)} {actual.messages} messages and "
        f"{actual.offsets} partitions have offsets, so only `logbroker partitions {after}` changes it, while the broker runs; "
        f"else leave --partitions out, or make it {actual.number}"
    )


def _named(actual: Actual) -> str:
    names = actual.names
    return f"{names[0]} holds" if len(names) == 1 else f"{len(names)} streams hold"


def _removals(desired: Topology, actual: Actual) -> tuple[Step, ...]:
    # the streams are empty and nothing was received: nothing is lost with these
    return tuple(
        Step(
            *(Action.REMOVE, Kind.CONSUMER, name, {}),
            stream=stream_of(existing_in([name]) - 1, desired.stream_count),
        )
        for name in sorted(actual.consumers)
        if existing_in([name]) > desired.all_partitions
    )
