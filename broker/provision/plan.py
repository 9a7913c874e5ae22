"""Plans the steps that bring a broker to the declared state, and what each step would delete.

Never talks to a server. Only declared fields are compared, since a server adds defaults. When a
limit is lowered, nats-server (2.15.1) deletes messages that are too old, or too many of a subject.
It deletes messages beyond a limit of count or bytes only if the stream discards old ones. It
refuses changes that it cannot make. Receivers make their own consumers.
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
_MOST_SHOWN = 200  # characters of a value, such as the subjects of all partitions


class BeingRestored(ConfigurationError):
    """A backup is only partly restored; changing its streams would open them with missing lines."""


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """A stream or bucket entry to create, or to update if there are `changes`.

    `config` is the whole configuration, as the server takes it. `revision` is that of an entry
    when the plan was made. `deletes` says which messages the step would delete now.
    """

    kind: Literal["stream", "entry"]
    name: str
    config: Mapping[str, Any]
    changes: tuple[Change, ...] = ()
    deletes: str = ""
    revision: int = 0

    @property
    def action(self) -> str:
        """`create` or `update`."""
        return "update" if self.changes else "create"


def compare(wanted: Step, info: Mapping[str, Any] | None) -> tuple[Step, ...]:
    """Return the step that creates or updates a stream, if any; fields not in `wanted` stay."""
    if info is None:
        return (wanted,)
    found, changes = info["config"], []
    for field, value in wanted.config.items():
        before = found.get(field)
        # others may write metadata too: only the given names are ours
        after = {**(before or {}), **(value or {})} if field == "metadata" else value
        if _normalize(field, before) != _normalize(field, after):
            changes.append(Change(field, before, after))
    if not changes:
        return ()
    config = {**found, **{change.field: change.after for change in changes}}
    kept = {field: value for field, value in config.items() if value not in (None, {})}
    step = replace(wanted, config=kept, changes=tuple(changes))
    return (replace(step, deletes=_describe_deletion(step, info)),)


def _normalize(field: str, value: Any) -> Any:
    is_default = field == "persist_mode" and value == "default"
    is_unbounded = field in _UNBOUNDED and isinstance(value, int) and value <= 0
    # a server leaves out values that are false, empty or null
    return None if is_default or is_unbounded else value or None


def _describe_deletion(step: Step, info: Mapping[str, Any]) -> str:
    """Return which messages the update of a stream would delete now, as text; empty for none."""
    state, changed = info["state"], {change.field for change in step.changes}
    if not state["messages"]:
        return ""
    if "max_age" in changed and (age := int(step.config.get("max_age") or 0)) > 0:
        # the server's own clock decides what expires
        begin = datetime.fromisoformat(info["ts"]) - timedelta(microseconds=age // 1000)
        if datetime.fromisoformat(state["first_ts"]) < begin:
            return f"deletes messages from before {begin:%Y-%m-%dT%H:%M:%SZ}"
    limits = [("max_msgs_per_subject", state["messages"])]
    if step.config.get("discard", "old") == "old":
        limits += [("max_msgs", state["messages"]), ("max_bytes", state["bytes"])]
    for field, held in limits:
        limit = int(step.config.get(field) or 0)
        if changed & {field, "discard"} and 0 < limit < held:
            stored, most = format_value(field, held), format_value(field, limit)
            return f"deletes the oldest beyond {field} {most}: {stored} are stored"
    return ""


def describe(steps: Iterable[Step]) -> str:
    """Return a plan as text: a line for each step, then its changes and what it would delete."""
    lines = []
    for step in steps:
        sign = "~" if step.changes else "+"
        lines.append(f"{sign} {step.action} {step.kind} {step.name}")
        for one in step.changes:
            before, after = format_value(one.field, one.before), format_value(one.field, one.after)
            if before == after:  # the difference is below the rounding of units
                before, after = str(one.before), str(one.after)
            lines.append(f"    - {one.field}: {before}  + {one.field}: {after}")
        lines += [f"    ! {step.deletes}"] if step.deletes else []
    return "\n".join(map(printable, lines))


def serialize_plan(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return a plan as values for JSON."""
    return [{**asdict(one), "action": one.action} for one in steps]


def format_value(field: str, value: Any) -> str:
    """Return the value of a field as text, with units."""
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
    """The actual state: STREAM.INFO by stream, and value and revision of entries by key."""

    streams: Mapping[str, Mapping[str, Any]]
    entries: Mapping[str, tuple[str, int]]

    @property
    def stream_count(self) -> int | None:
        """The number of streams of lines, None without an entry for it."""
        return parse_number(self.entries.get(STREAMS_KEY, ("", 0))[0], MAX_STREAMS)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams of lines."""
        return stream_names(self.stream_count or 1)

    @property
    def infos(self) -> tuple[Mapping[str, Any], ...]:
        """STREAM.INFO of the streams of lines that exist."""
        return tuple(self.streams[name] for name in self.names if name in self.streams)

    @property
    def mirror(self) -> str | None:
        """The site that these streams are a mirror of, if any."""
        return find_mirrored_site(self.infos[0]["config"]) if self.infos else None

    @property
    def number(self) -> int | None:
        """The number of partitions: the entry's, or else `existing`."""
        return self._stored_number or self.existing or None

    @property
    def _stored_number(self) -> int | None:
        return parse_number(self.entries.get(PARTITIONS_KEY, ("", 0))[0], MAX_PARTITIONS)

    @property
    def existing(self) -> int:
        """The number of partitions that have a subject in a stream: the highest one, plus 1."""
        subjects = (info["config"].get("subjects") or () for info in self.infos)
        return count_partitions(chain(*subjects))

    def refuse_other_number(self, partitions: int) -> None:
        """Raise `ConfigurationError` if lines or offsets are stored for another number.

        Only `logbroker partitions` changes the number then.
        """
        # without the entry the number may have been smaller than the number of subjects
        agrees = (
            partitions == self._stored_number
            if self._stored_number
            else partitions <= (self.number or partitions)
        )
        messages = sum(info["state"]["messages"] for info in self.infos)
        bucket = self.streams.get(f"KV_{OFFSETS_BUCKET}")
        offsets = bucket["state"].get("num_subjects", 0) if bucket else 0
        if (messages or offsets) and not agrees:
            raise ConfigurationError(
                f"the number of partitions is {self.number} and not {partitions}: there are "
                f"{format_count(messages, 'message')} in {', '.join(self.names)}, and offsets of "
                f"{format_count(offsets, 'partition')}. To change it, run "
                f"`logbroker partitions {partitions}` while the broker runs; else leave "
                f"--partitions out, or give {self.number}"
            )


def refuse_half_restored(streams: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `BeingRestored` if one of the streams is being restored."""
    if half := sorted(n for n, info in streams.items() if is_being_restored(info["config"])):
        raise BeingRestored(
            f"a backup is not completely restored ({', '.join(half)}): wait for `logbroker "
            "restore`, or run it again; nothing was changed"
        )


def plan(desired: Topology, actual: Actual) -> tuple[Step, ...]:
    """Return what to create and update, in this order.

    The entry of the number of partitions comes last: shippers and receivers wait for it, and then
    rely on the rest. Partitions that no host uses any more stay. Raises `ConfigurationError` for a
    change that is not possible with stored lines.
    """
    refuse_half_restored(actual.streams)
    desired = _adapt(desired, actual)
    # the number of streams comes before the streams of lines: if a start is killed between these,
    # the next start completes them with the same number
    streams = {
        one["name"]: _plan_stream(_drop_kept(one, desired, actual), actual)
        for one in desired.streams()
    }
    bucket = streams.pop(f"KV_{CONFIG_BUCKET}")
    steps = tuple(chain(*streams.values()))
    if desired.mirror:  # its entries are copied from the other site
        return (*bucket, *steps)
    partitions = _plan_entry(PARTITIONS_KEY, actual, desired.partitions)
    return (*bucket, *_plan_entry(STREAMS_KEY, actual, desired.stream_count), *steps, *partitions)


def _adapt(desired: Topology, actual: Actual) -> Topology:
    """Return the declaration, with numbers and limits of the actual state where none is given.

    Raises `ConfigurationError` for contradictions between the two.
    """
    count, number = actual.stream_count, desired.partitions
    if not desired.streams_given:
        desired = replace(desired, stream_count=count or desired.stream_count)
    if not desired.partitions_given:
        number = actual.number or number
    if count not in {None, desired.stream_count}:
        raise ConfigurationError(
            f"the number of streams is {count} and not {desired.stream_count}: it is fixed at the "
            f"first start; give --streams {count}, or leave it out. To change it, stop all "
            "shippers, wait until receivers have received all lines, stop them too, `logbroker "
            "backup DIR`, start on an empty --store-dir, `logbroker restore DIR --positions`, and "
            "`logreceiver offsets set --partition all --to earliest`"
        )
    # only an explicit --mirror ends a mirror
    mirror = actual.mirror if desired.mirror is None else desired.mirror
    if not mirror:
        actual.refuse_other_number(number)
    elif (existing := actual.number) and existing != number:
        raise ConfigurationError(
            f"site {mirror} has {format_count(existing, 'partition')}, so its mirror cannot have "
            f"{number}; give --partitions {existing}"
        )
    limits = [info["config"].get("max_bytes", -1) for info in actual.infos]
    most = desired.max_bytes
    if most and not desired.may_grow and limits and min(limits) > 0:
        most = min(most, min(limits) * desired.stream_count)  # further streams may still be created
    if "sources" in desired.kept and any(info["config"].get("sources") for info in actual.infos):
        desired = replace(desired, sources=None)  # the limit of messages stays with them
    return replace(
        desired, partitions=number, existing=actual.existing, mirror=mirror, max_bytes=most
    )


def plan_partitions(partitions: int, actual: Actual) -> tuple[Step, ...]:
    """Return the steps to another number of partitions; the entry for shippers comes last."""
    most, count = max(partitions, actual.existing), len(actual.names)
    steps: list[Step] = []
    for name in actual.names:
        existing = actual.streams[name]["config"].get("subjects") or ()
        wanted = subjects_in(name, StreamLayout(most, count))
        subjects = list(dict.fromkeys((*existing, *wanted)))
        steps += _plan_stream({"name": name, "subjects": subjects}, actual)
    return (*steps, *_plan_entry(PARTITIONS_KEY, actual, partitions))


def _drop_kept(config: dict[str, Any], desired: Topology, actual: Actual) -> dict[str, Any]:
    """Return a configuration without the fields that an existing stream of lines keeps."""
    if config["name"] not in actual.streams or config["name"] not in desired.names:
        return config
    return {field: value for field, value in config.items() if field not in desired.kept}


def _plan_stream(config: Mapping[str, Any], actual: Actual) -> tuple[Step, ...]:
    return compare(Step("stream", config["name"], config), actual.streams.get(config["name"]))


def _plan_entry(key: str, actual: Actual, number: int) -> tuple[Step, ...]:
    before, revision = actual.entries.get(key, (None, 0))
    after = str(number)
    if before == after:
        return ()
    changes = () if before is None else (Change("value", before, after),)
    config = {"value": after}
    return (Step("entry", f"{CONFIG_BUCKET}/{key}", config, changes=changes, revision=revision),)
