"""What has to change on a broker so that it is as declared: steps, what they would delete, and how people read them.

Compares and decides, and never talks to a server. Only fields that we declare are compared; a server adds defaults of its own.
What nats-server (2.15.1) deletes when a limit is lowered was tried: what is too old and what a host has too much in any case,
messages and bytes beyond a limit only where the stream discards old ones. What it cannot change in place it refuses itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Literal

from broker.app.exits import ConfigurationError
from broker.app.units import format_duration, format_size
from broker.app.untrusted import printable
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

COPIED_BUCKETS = {f"KV_{name}": f"$KV.{name}.>" for name in (CONFIG_BUCKET, POSITIONS_BUCKET)}
"""The buckets that a site copies from another one besides the streams, each with its subject."""
_UNBOUNDED = frozenset(
    {"max_age", "max_bytes", "max_msgs", "max_msg_size", "max_msgs_per_subject", "max_consumers"}
    | {"max_deliver", "max_ack_pending"}
)
_LENGTHS = frozenset({"max_age", "duplicate_window", "ack_wait", "inactive_threshold"})
_SIZES = frozenset({"max_bytes", "max_msg_size"})
_SHOWN = 10  # of a list, such as the subjects of all partitions


ResourceKind = Literal["stream", "consumer", "entry"]
"""What a step is about."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to create, or, where `changes` say how, to update; `config` is whole, as the server takes it.

    `stream` is the one that a consumer belongs to; `deletes` says for a person which messages the step would delete.
    """

    kind: ResourceKind
    name: str
    config: Mapping[str, Any]
    stream: str = ""
    changes: tuple[Change, ...] = ()
    deletes: str = ""

    @property
    def action(self) -> str:
        """What the step does: `create` or `update`."""
        return "update" if self.changes else "create"


def compare(wanted: Step, found: Mapping[str, Any] | None) -> tuple[Step, ...]:
    """Return what makes `found` as wanted; only fields that are wanted are compared, all others stay."""
    if found is None:
        return (wanted,)
    changes = []
    for field, value in wanted.config.items():
        before = found.get(field)
        # of metadata, which several may write to, only the names that are given are ours
        after = {**(before or {}), **(value or {})} if field == "metadata" else value
        if _normal(field, before) != _normal(field, after):
            changes.append(Change(field, before, after))
    if not changes:
        return ()
    config = {**found, **{change.field: change.after for change in changes}}
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    return (replace(wanted, config=kept, changes=tuple(changes)),)


def _normal(field: str, value: Any) -> Any:
    is_default = field == "persist_mode" and value == "default"
    is_unbounded = field in _UNBOUNDED and isinstance(value, int) and value <= 0
    # a server leaves out what is false, empty or nothing
    return None if is_default or is_unbounded else value or None


def deleted_by(step: Step, info: Mapping[str, Any]) -> str:
    """Return which messages the update of a stream would delete now, empty for none; `info` is the answer to STREAM.INFO."""
    state, changed = info["state"], {change.field for change in step.changes}
    if not state["messages"]:
        return ""
    if "max_age" in changed and (age := int(step.config.get("max_age") or 0)) > 0:
        # the server's own clock decides what expires
        begin = datetime.fromisoformat(info["ts"]) - timedelta(microseconds=age // 1000)
        if datetime.fromisoformat(state["first_ts"]) < begin:
            return f"deletes what is from before {begin:%Y-%m-%dT%H:%M:%SZ}"
    limits = [("max_msgs_per_subject", state["messages"])]
    if step.config.get("discard", "old") == "old":
        limits += [("max_msgs", state["messages"]), ("max_bytes", state["bytes"])]
    for field, held in limits:
        limit = int(step.config.get(field) or 0)
        if changed & {field, "discard"} and 0 < limit < held:
            there, most = shown(field, held), shown(field, limit)
            return f"deletes the oldest beyond {field} {most}: {there} are there"
    return ""


def describe(steps: Iterable[Step]) -> str:
    """Return a plan as text: a line for each step, and what differs and what it would delete below it."""
    lines = []
    for step in steps:
        sign = "~" if step.changes else "+"
        lines.append(f"{sign} {step.action} {step.kind} {step.name}")
        for one in step.changes:
            before, after = shown(one.field, one.before), shown(one.field, one.after)
            if before != after:  # not metadata that logbroker keeps for itself
                lines.append(f"    - {one.field}: {before}  + {one.field}: {after}")
        lines += [f"    ! {step.deletes}"] if step.deletes else []
    return "\n".join(map(printable, lines))


def as_json(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return a plan for programs."""
    return [{**asdict(one), "action": one.action} for one in steps]


def shown(field: str, value: Any) -> str:
    """Return the value of a field in people's units."""
    if field in _LENGTHS and isinstance(value, int):
        return format_duration(timedelta(microseconds=value // 1000))
    if field in _SIZES and isinstance(value, int) and value > 0:
        return format_size(value)
    if isinstance(value, dict):
        own = (name for name in value if not name.startswith(("_nats.", "logship.")))
        value = ", ".join(f"{name}={shown(name, value[name])}" for name in own)
    if isinstance(value, list):
        more = len(value) - _SHOWN
        value = ",".join(map(str, value[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return "not set" if value in (None, "") else str(value)


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


def plan(desired: Topology, actual: Actual) -> tuple[Step, ...]:
    """Return what to create and update, in this order; raises `ConfigurationError` for what cannot be changed under stored lines.

    The number of partitions comes last: shippers and receivers wait for that entry and then rely on the rest. Partitions that hosts
    have left stay. While something is being restored nothing is to be done: to give a stream its subjects would open it with a part of its lines.
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
            "`logbroker backup`, start on a new --store-dir, and restore KV_LOGS_POSITIONS there"
        )
    if desired.mirror is None:  # only who says so ends a copy
        there = [actual.streams[name] for name in actual.names if name in actual.streams]
        desired = replace(desired, mirror=mirrored_site(there[0]) if there else None)
    # the number of streams needs its bucket, and comes before all streams of lines: a start that dies among them is completed by
    # the next one with the same number
    streams = {
        one["name"]: _stream(one, actual.streams.get(one["name"])) for one in desired.streams()
    }
    bucket = streams.pop(f"KV_{CONFIG_BUCKET}")
    number = _entry(STREAMS_KEY, actual.streams_entry, desired.stream_count)
    return (
        *bucket,
        *(() if desired.mirror else number),
        *chain(*streams.values()),
        *_consumers(StreamLayout(desired.all_partitions, desired.stream_count), actual),
        *_partitions_entry(desired, actual),
    )


def plan_partitions(partitions: int, actual: Actual) -> tuple[Step, ...]:
    """Return what spreads hosts over another number of partitions and removes nothing; its entry, by which shippers go, comes last."""
    layout = StreamLayout(max(partitions, actual.existing), len(actual.names))
    steps: list[Step] = []
    for name in actual.names:
        taken = actual.streams[name].get("subjects") or ()
        subjects = list(dict.fromkeys((*taken, *subjects_in(name, layout))))
        steps += _stream({"name": name, "subjects": subjects}, actual.streams[name])
    entry = _entry(PARTITIONS_KEY, actual.partitions, partitions)
    return (*steps, *_consumers(layout, actual), *entry)


def plan_promotion(
    configs: Mapping[str, Mapping[str, Any]], layout: StreamLayout
) -> tuple[Step, ...]:
    """Return what makes streams of the copies of another site's among `configs`, for a layout of all partitions that exist."""
    # sequences go on where the copy ended: whoever comes over goes on by compare-and-set as if nothing had happened
    subjects = {name: list(subjects_in(name, layout)) for name in layout.names}
    subjects |= {name: [subject] for name, subject in COPIED_BUCKETS.items()}
    own = {"mirror": None, "mirror_direct": False}
    there = [name for name in subjects if name in configs]
    steps = (_stream({"name": n, "subjects": subjects[n], **own}, configs[n]) for n in there)
    return tuple(chain(*steps))


def _stream(config: Mapping[str, Any], found: Mapping[str, Any] | None) -> tuple[Step, ...]:
    return compare(Step("stream", config["name"], config), found)


def _consumers(layout: StreamLayout, actual: Actual) -> tuple[Step, ...]:
    wanted = (
        Step("consumer", consumer_name(n), consumer_config(n), layout.stream_of(n))
        for n in range(layout.partitions)
    )
    return tuple(chain(*(compare(one, actual.consumers.get(one.name)) for one in wanted)))


def _partitions_entry(desired: Topology, actual: Actual) -> tuple[Step, ...]:
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
    return _entry(PARTITIONS_KEY, actual.partitions, after)


def _entry(key: str, before: str | None, number: int) -> tuple[Step, ...]:
    after = str(number)
    if before == after:
        return ()
    changes = () if before is None else (Change("value", before, after),)
    return (Step("entry", f"{CONFIG_BUCKET}/{key}", {"value": after}, changes=changes),)
