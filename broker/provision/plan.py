"""What has to change on a broker so that it is as declared: compares, and decides. Never talks to a server.

Only fields that we declare are compared; a server adds defaults of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.app.untrusted import printable
from broker.provision.steps import (
    Action,
    Change,
    Plan,
    ResourceKind,
    Step,
    Wanted,
    compare_all,
    join_plans,
)
from broker.topology import Topology, mirrored_site
from broker.wire.descent import is_being_restored
from broker.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    STREAMS_KEY,
    StreamLayout,
    consumer_config,
    existing_in,
    partitions_in,
    stream_names,
    subjects_in,
)
from broker.wire.subjects import consumer_name

__all__ = ["COPIED_BUCKETS", "Actual", "plan", "plan_partitions", "plan_promotion"]

COPIED_BUCKETS = {f"KV_{name}": f"$KV.{name}.>" for name in (CONFIG_BUCKET, POSITIONS_BUCKET)}
"""The buckets that a site copies from another one besides the streams, each with its subject."""


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
        """How many partitions hosts are spread over: what the entry says, or else how many exist."""
        return partitions_in(self.partitions) or self.existing or None

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
    """Return what to create and update, in order: the number of streams, streams, consumers, the number of partitions.

    The number of streams comes first: whatever becomes of the rest, the next start goes on with that number. The number of
    partitions comes last, since shippers and receivers wait for that entry and then rely on the rest. Partitions that hosts have
    left stay. While something is being restored nothing is to be done: to give a stream its subjects would open it with a part of
    its lines.
    """
    if any(is_being_restored(config) for config in actual.streams.values()):
        return Plan(())
    desired = desired.following(actual.number, actual.stream_count)
    number = _streams_entry(desired.stream_count, actual)
    if number.refusals:
        return number
    desired = replace(desired, existing=actual.existing)
    if desired.mirror is None:  # only who says so ends a copy
        desired = replace(desired, mirror=_site_of(actual))
    streams = [Wanted(ResourceKind.STREAM, config["name"], config) for config in desired.streams()]
    return join_plans(
        (
            Plan(()) if desired.mirror else number,
            compare_all((one, actual.streams.get(one.name)) for one in streams),
            _consumers(StreamLayout(desired.all_partitions, desired.stream_count), actual),
            _copied_entry(desired, actual)
            if desired.mirror
            else _partitions_entry(desired, actual),
        )
    )


def plan_partitions(partitions: int, actual: Actual) -> Plan:
    """Return what spreads hosts over another number of partitions, whatever the stream holds: nothing is removed.

    The entry comes last: from then on shippers go over to their host's new subject, and say on the old one that they did.
    """
    layout = StreamLayout(max(partitions, actual.existing), len(actual.names))
    streams = compare_all(
        (Wanted(ResourceKind.STREAM, name, {"subjects": _subjects(name, layout, found)}), found)
        for name in actual.names
        if (found := actual.streams[name])
    )
    entry = _entry(PARTITIONS_KEY, actual.partitions, str(partitions))
    return join_plans((streams, _consumers(layout, actual), entry))


def plan_promotion(configs: Mapping[str, Mapping[str, Any]], layout: StreamLayout) -> Plan:
    """Return what makes streams of the copies of another site's among `configs`; what is no copy stays.

    The sequences go on where the copy ended, so that shippers and receivers that come over go on by compare-and-set as if
    nothing had happened: a shipper whose last lines the copy lacks is told so by the sequence that it expects. The layout is
    that of all partitions that exist.
    """
    subjects = {name: list(subjects_in(name, layout)) for name in layout.names}
    subjects |= {name: [subject] for name, subject in COPIED_BUCKETS.items()}
    own = {"mirror": None, "mirror_direct": False}
    return compare_all(
        (Wanted(ResourceKind.STREAM, name, {"subjects": subjects[name], **own}), configs[name])
        for name in subjects
        if name in configs
    )


def _subjects(name: str, layout: StreamLayout, found: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys((*(found.get("subjects") or ()), *subjects_in(name, layout))))


def _site_of(actual: Actual) -> str | None:
    """Return the site of which the streams that are there are copies, if any."""
    there = [actual.streams[name] for name in actual.names if name in actual.streams]
    return mirrored_site(there[0]) if there else None


def _consumers(layout: StreamLayout, actual: Actual) -> Plan:
    return compare_all(
        (
            Wanted(ResourceKind.CONSUMER, name, consumer_config(number), layout.stream_of(number)),
            actual.consumers.get(name),
        )
        for number in range(layout.partitions)
        if (name := consumer_name(number))
    )


def _partitions_entry(desired: Topology, actual: Actual) -> Plan:
    """Return what to do about the number of partitions: under stored lines or offsets only a command of its own changes it."""
    said, after = partitions_in(actual.partitions), desired.partitions
    # where the entry is gone the number may have been smaller than how many exist
    agrees = after == said if said else after <= (actual.number or after)
    if (actual.messages or actual.offsets) and not agrees:
        return Plan((), (_moved_hosts(after, actual),))
    return _entry(PARTITIONS_KEY, actual.partitions, str(after))


def _streams_entry(streams: int, actual: Actual) -> Plan:
    """Return what to do about the number of streams: it is written once, and never changes."""
    count = actual.stream_count
    if count in {None, streams}:
        return _entry(STREAMS_KEY, actual.streams_entry, str(streams))
    refusal = (
        f"the number of streams is {count} and not {streams}: it is fixed at the first start; give --streams "
        f"{count}, or leave it out. For another number have receivers receive all that there is, "
        "`logbroker backup`, start on a new --store-dir, and restore KV_LOGS_POSITIONS there (README, Streams)"
    )
    return Plan((), (refusal,))


def _entry(key: str, before: str | None, after: str) -> Plan:
    name, value = f"{CONFIG_BUCKET}/{key}", {"value": after}
    if before == after:
        return Plan(())
    if before is None:
        return Plan((Step(Action.CREATE, ResourceKind.ENTRY, name, value),))
    change = Change("value", printable(before), after)
    return Plan((Step(Action.UPDATE, ResourceKind.ENTRY, name, value, (change,)),))


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


def _moved_hosts(after: int, actual: Actual) -> str:
    is_said = partitions_in(actual.partitions) is not None
    told = "" if is_said else ", as consumers and subjects show; its entry says none,"
    names = actual.names
    held = f"{names[0]} holds" if len(names) == 1 else f"{len(names)} streams hold"
    return (
        f"the number of partitions is {actual.number}{told} and not {after}: {held} {actual.messages} messages and "
        f"{actual.offsets} partitions have offsets, so only `logbroker partitions {after}` changes it, while the broker runs; "
        f"else leave --partitions out, or make it {actual.number}"
    )
