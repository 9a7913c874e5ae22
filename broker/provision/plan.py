"""What has to change on a broker so that it is as declared: compares, and decides. Never talks to a server.

Only fields that we declare are compared; a server adds defaults of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from broker.app.exits import ConfigurationError
from broker.app.untrusted import printable
from broker.provision.steps import Change, ResourceKind, Step, compare
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
Steps = tuple[Step, ...]


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
        subjects = (self.streams.get(name, {}).get("subjects") or () for name in self.names)
        return existing_in([*self.consumers, *chain(*subjects)])


def plan(desired: Topology, actual: Actual) -> Steps:
    """Return what to create and update; raises `ConfigurationError` for what cannot be changed under stored lines.

    Partitions that hosts have left stay. While something is being restored nothing is to be done: to give a stream its subjects
    would open it with a part of its lines.
    """
    if any(is_being_restored(config) for config in actual.streams.values()):
        return ()
    desired = desired.following(actual.number, actual.stream_count)
    desired = replace(desired, existing=actual.existing)
    count = actual.stream_count
    if count not in {None, desired.stream_count}:
        raise ConfigurationError(
            f"the number of streams is {count} and not {desired.stream_count}: it is fixed at the first start; give --streams "
            f"{count}, or leave it out. For another number have receivers receive all that there is, "
            "`logbroker backup`, start on a new --store-dir, and restore KV_LOGS_POSITIONS there (README, Streams)"
        )
    if desired.mirror is None:  # only who says so ends a copy
        there = [actual.streams[name] for name in actual.names if name in actual.streams]
        desired = replace(desired, mirror=mirrored_site(there[0]) if there else None)
    streams = (
        compare(Step(ResourceKind.STREAM, name, config), actual.streams.get(name))
        for config in desired.streams()
        for name in [config["name"]]
    )
    return (
        *_streams_entry(desired, actual),
        *chain(*streams),
        *_consumers(StreamLayout(desired.all_partitions, desired.stream_count), actual),
        *_partitions_entry(desired, actual),
    )


def plan_partitions(partitions: int, actual: Actual) -> Steps:
    """Return what spreads hosts over another number of partitions, whatever the stream holds: nothing is removed.

    The entry comes last: from then on shippers go over to their host's new subject, and say on the old one that they did.
    """
    layout = StreamLayout(max(partitions, actual.existing), len(actual.names))
    return (
        *chain(*(_with_subjects(actual.streams[name], layout) for name in actual.names)),
        *_consumers(layout, actual),
        *_entry(PARTITIONS_KEY, actual.partitions, str(partitions)),
    )


def _with_subjects(config: Mapping[str, Any], layout: StreamLayout) -> Steps:
    name, taken = config["name"], config.get("subjects") or ()
    subjects = list(dict.fromkeys((*taken, *subjects_in(name, layout))))
    return compare(Step(ResourceKind.STREAM, name, {"subjects": subjects}), config)


def plan_promotion(configs: Mapping[str, Mapping[str, Any]], layout: StreamLayout) -> Steps:
    """Return what makes streams of the copies of another site's among `configs`; what is no copy stays.

    The sequences go on where the copy ended, so that shippers and receivers that come over go on by compare-and-set as if
    nothing had happened: a shipper whose last lines the copy lacks is told so by the sequence that it expects. The layout is
    that of all partitions that exist.
    """
    subjects = {name: list(subjects_in(name, layout)) for name in layout.names}
    subjects |= {name: [subject] for name, subject in COPIED_BUCKETS.items()}
    own = {"mirror": None, "mirror_direct": False}
    wanted = (
        Step(ResourceKind.STREAM, name, {"subjects": subjects[name], **own}) for name in subjects
    )
    return tuple(chain(*(compare(one, configs[one.name]) for one in wanted if one.name in configs)))


def _consumers(layout: StreamLayout, actual: Actual) -> Steps:
    wanted = (
        Step(ResourceKind.CONSUMER, consumer_name(n), consumer_config(n), layout.stream_of(n))
        for n in range(layout.partitions)
    )
    return tuple(chain(*(compare(one, actual.consumers.get(one.name)) for one in wanted)))


def _streams_entry(desired: Topology, actual: Actual) -> Steps:
    if desired.mirror:
        return ()  # it comes from the other site
    return _entry(STREAMS_KEY, actual.streams_entry, str(desired.stream_count))


def _partitions_entry(desired: Topology, actual: Actual) -> Steps:
    """Return what to do about the number of partitions: under stored lines or offsets only a command of its own changes it."""
    said, after = partitions_in(actual.partitions), desired.partitions
    if desired.mirror:
        if said in {None, after}:
            return ()  # it comes from the other site, sooner or later
        raise ConfigurationError(
            f"site {desired.mirror} has {said} partitions, so its copy cannot have {after}; give --partitions {said}"
        )
    # where the entry is gone the number may have been smaller than how many exist
    agrees = after == said if said else after <= (actual.number or after)
    if (actual.messages or actual.offsets) and not agrees:
        raise ConfigurationError(
            f"the number of partitions is {actual.number} and not {after}: {', '.join(actual.names)} have {actual.messages} "
            f"messages and {actual.offsets} partitions have offsets, so only `logbroker partitions {after}` changes it, while "
            f"the broker runs; else leave --partitions out, or make it {actual.number}"
        )
    return _entry(PARTITIONS_KEY, actual.partitions, str(after))


def _entry(key: str, before: str | None, after: str) -> Steps:
    if before == after:
        return ()
    changes = () if before is None else (Change("value", printable(before), after),)
    return (Step(ResourceKind.ENTRY, f"{CONFIG_BUCKET}/{key}", {"value": after}, changes=changes),)
