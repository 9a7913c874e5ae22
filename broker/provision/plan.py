"""What has to change on a broker so that it is as declared: steps, what they would delete, and how people read them.

Compares and decides, and never talks to a server. Only fields that we declare are compared; a server adds defaults of its own.
What nats-server (2.15.1) deletes when a limit is lowered was tried: what is too old and what a host has too much in any case,
messages and bytes beyond a limit only where the stream discards old ones. What it cannot change in place it refuses itself.
What is there are its own answers (STREAM.INFO), by name. Receivers make their consumers themselves.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Literal

from broker.topology import Topology, find_mirrored_site, subjects_in
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.text import format_count, printable
from nats_logship.app.units import format_duration, format_size
from nats_logship.wire.restored import is_being_restored
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    MAX_PARTITIONS,
    MAX_STREAMS,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    STREAMS_KEY,
    StreamLayout,
    count_partitions,
    parse_number,
    stream_names,
)

_UNBOUNDED = frozenset(
    {"max_age", "max_bytes", "max_msgs", "max_msg_size", "max_msgs_per_subject", "max_consumers"}
)
_LENGTHS = frozenset({"max_age", "duplicate_window"})
_SIZES = frozenset({"max_bytes", "max_msg_size"})
_MOST_SHOWN = 200  # letters of a value, such as the subjects of all partitions


class BeingRestored(ConfigurationError):
    """A part of a backup is there, closed to everybody: to give a stream its subjects would open it with a part of its lines."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to create, or, where `changes` say how, to update; `config` is whole, as the server takes it.

    `revision` is that of an entry when the plan was made; `deletes` says for a person which messages the step would delete now.
    """

    kind: Literal["stream", "entry"]
    name: str
    config: Mapping[str, Any]
    changes: tuple[Change, ...] = ()
    deletes: str = ""
    revision: int = 0

    @property
    def action(self) -> str:
        """What the step does: `create` or `update`."""
        return "update" if self.changes else "create"


def compare(wanted: Step, info: Mapping[str, Any] | None) -> tuple[Step, ...]:
    """Return what makes a stream as wanted; only fields that are wanted are compared, all others stay."""
    if info is None:
        return (wanted,)
    found, changes = info["config"], []
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
    step = replace(wanted, config=kept, changes=tuple(changes))
    return (replace(step, deletes=_deleted_by(step, info)),)


def _normal(field: str, value: Any) -> Any:
    is_default = field == "persist_mode" and value == "default"
    is_unbounded = field in _UNBOUNDED and isinstance(value, int) and value <= 0
    # a server leaves out what is false, empty or nothing
    return None if is_default or is_unbounded else value or None


def _deleted_by(step: Step, info: Mapping[str, Any]) -> str:
    """Return which messages the update of a stream would delete now, empty for none."""
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
            there, most = format_value(field, held), format_value(field, limit)
            return f"deletes the oldest beyond {field} {most}: {there} are there"
    return ""


def describe(steps: Iterable[Step]) -> str:
    """Return a plan as text: a line for each step, and what differs and what it would delete below it."""
    lines = []
    for step in steps:
        sign = "~" if step.changes else "+"
        lines.append(f"{sign} {step.action} {step.kind} {step.name}")
        for one in step.changes:
            before, after = format_value(one.field, one.before), format_value(one.field, one.after)
            if before == after:  # they differ by less than people's units show
                before, after = str(one.before), str(one.after)
            lines.append(f"    - {one.field}: {before}  + {one.field}: {after}")
        lines += [f"    ! {step.deletes}"] if step.deletes else []
    return "\n".join(map(printable, lines))


def serialize_plan(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return a plan for programs."""
    return [{**asdict(one), "action": one.action} for one in steps]


def format_value(field: str, value: Any) -> str:
    """Return the value of a field in people's units."""
    if field in _LENGTHS and isinstance(value, int):
        return format_duration(timedelta(microseconds=value // 1000))
    if field in _SIZES and isinstance(value, int) and value > 0:
        return format_size(value)
    if value in (None, "", [], {}):
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Actual:
    """What is there: streams, and the bucket's entries with their revisions."""

    streams: Mapping[str, Mapping[str, Any]]
    entries: Mapping[str, tuple[str, int]]

    @property
    def stream_count(self) -> int | None:
        """How many streams there are, None where no entry says so."""
        return parse_number(self.entries.get(STREAMS_KEY, ("", 0))[0], MAX_STREAMS)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams that partitions live in."""
        return stream_names(self.stream_count or 1)

    @property
    def infos(self) -> tuple[Mapping[str, Any], ...]:
        """The streams that partitions live in, those that are there."""
        return tuple(self.streams[name] for name in self.names if name in self.streams)

    @property
    def mirror(self) -> str | None:
        """The site that these streams are copied from, if any."""
        return find_mirrored_site(self.infos[0]["config"]) if self.infos else None

    @property
    def number(self) -> int | None:
        """How many partitions hosts are spread over: what the entry says, or else how many exist."""
        return self._said or self.existing or None

    @property
    def _said(self) -> int | None:
        return parse_number(self.entries.get(PARTITIONS_KEY, ("", 0))[0], MAX_PARTITIONS)

    @property
    def existing(self) -> int:
        """The number below which all partitions are that a stream has the subject of."""
        return count_partitions(
            chain(*(info["config"].get("subjects") or () for info in self.infos))
        )

    def refuse_other(self, partitions: int) -> None:
        """Raise `ConfigurationError` for a number of partitions that a command of its own changes: under stored lines or offsets."""
        # where the entry is gone the number may have been smaller than how many exist
        agrees = (
            partitions == self._said if self._said else partitions <= (self.number or partitions)
        )
        messages = sum(info["state"]["messages"] for info in self.infos)
        bucket = self.streams.get(f"KV_{OFFSETS_BUCKET}")
        offsets = bucket["state"].get("num_subjects", 0) if bucket else 0
        if (messages or offsets) and not agrees:
            raise ConfigurationError(
                f"the number of partitions is {self.number} and not {partitions}: {', '.join(self.names)} have {format_count(messages, 'message')} "
                f"and {format_count(offsets, 'partition', 'have')} offsets, so only `logbroker partitions {partitions}` changes it, while the "
                f"broker runs; else leave --partitions out, or make it {self.number}"
            )


def refuse_half_restored(streams: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `BeingRestored` where one of the streams is."""
    if half := sorted(n for n, info in streams.items() if is_being_restored(info["config"])):
        raise BeingRestored(
            f"not all of a backup is back ({', '.join(half)}): wait for `logbroker restore`, or run it again; nothing was changed"
        )


def plan(desired: Topology, actual: Actual) -> tuple[Step, ...]:
    """Return what to create and update, in this order; raises `ConfigurationError` for what cannot be changed under stored lines.

    The number of partitions comes last: shippers and receivers wait for that entry and then rely on the rest. Partitions that hosts
    have left stay.
    """
    refuse_half_restored(actual.streams)
    desired = _as_found(desired, actual)
    # the number of streams needs its bucket, and comes before all streams of lines: a start that dies among them is completed by
    # the next one with the same number
    streams = {one["name"]: _stream(one, actual) for one in desired.streams()}
    bucket = streams.pop(f"KV_{CONFIG_BUCKET}")
    steps = tuple(chain(*streams.values()))
    if desired.mirror:  # entries come from the other site, sooner or later
        return (*bucket, *steps)
    partitions = _entry(PARTITIONS_KEY, actual, desired.partitions)
    return (*bucket, *_entry(STREAMS_KEY, actual, desired.stream_count), *steps, *partitions)


def _as_found(desired: Topology, actual: Actual) -> Topology:
    """Return what is declared, with what follows from what is there; raises `ConfigurationError` for what contradicts it."""
    count, number = actual.stream_count, desired.partitions
    if not desired.streams_given:
        desired = replace(desired, stream_count=count or desired.stream_count)
    if not desired.partitions_given:
        number = actual.number or number
    if count not in {None, desired.stream_count}:
        raise ConfigurationError(
            f"the number of streams is {count} and not {desired.stream_count}: it is fixed at the first start; give --streams "
            f"{count}, or leave it out. For another number stop all shippers, have receivers receive all that there is, stop "
            "them too, `logbroker backup DIR`, start on an empty --store-dir, `logbroker restore DIR --positions`, and "
            "`logreceiver offsets set --partition all --to earliest`"
        )
    # only who says so ends a copy
    mirror = actual.mirror if desired.mirror is None else desired.mirror
    if not mirror:
        actual.refuse_other(number)
    elif (there := actual.number) and there != number:
        raise ConfigurationError(
            f"site {mirror} has {format_count(there, 'partition')}, so its copy cannot have {number}; give --partitions {there}"
        )
    limits = [info["config"].get("max_bytes", -1) for info in actual.infos]
    most = desired.max_bytes
    if most and not desired.may_grow and limits and min(limits) > 0:
        most = min(most, min(limits) * desired.stream_count)  # others may still be made
    return replace(
        desired, partitions=number, existing=actual.existing, mirror=mirror, max_bytes=most
    )


def plan_partitions(partitions: int, actual: Actual) -> tuple[Step, ...]:
    """Return what spreads hosts over another number of partitions and removes nothing; its entry, by which shippers go, comes last."""
    most, count = max(partitions, actual.existing), len(actual.names)
    steps: list[Step] = []
    for name in actual.names:
        taken = actual.streams[name]["config"].get("subjects") or ()
        wanted = subjects_in(name, StreamLayout(most, count))
        steps += _stream({"name": name, "subjects": list(dict.fromkeys((*taken, *wanted)))}, actual)
    return (*steps, *_entry(PARTITIONS_KEY, actual, partitions))


def _stream(config: Mapping[str, Any], actual: Actual) -> tuple[Step, ...]:
    return compare(Step("stream", config["name"], config), actual.streams.get(config["name"]))


def _entry(key: str, actual: Actual, number: int) -> tuple[Step, ...]:
    before, revision = actual.entries.get(key, (None, 0))
    after = str(number)
    if before == after:
        return ()
    changes = () if before is None else (Change("value", before, after),)
    config = {"value": after}
    return (Step("entry", f"{CONFIG_BUCKET}/{key}", config, changes=changes, revision=revision),)
