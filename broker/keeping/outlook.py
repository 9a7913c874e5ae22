"""What a restore would mean for a broker as it is: what it deletes, what speaks against it, what is to be known. Decides only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.app.durations import format_duration
from broker.app.sizes import format_size
from broker.keeping.manifest import Archive
from broker.retention.disk import without_note
from broker.wire.descent import Ancestor, is_being_restored, is_closed, restoring
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = ["Change", "Outlook", "bound", "closed_config", "grown", "outlook"]

_NANOSECONDS = 1_000_000_000
_LIVES = (STREAM, f"KV_{OFFSETS_BUCKET}", f"KV_{POSITIONS_BUCKET}")
_CONFIG = f"KV_{CONFIG_BUCKET}"


@dataclass(frozen=True, slots=True)
class Change:
    """What a restore changes of the archived configurations; None leaves it as it was."""

    replicas: int | None = None
    max_age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Lines for a person: what is `deleted`, what is to be known (`notes`), and a `refusal`, empty if there is none."""

    deleted: tuple[str, ...]
    notes: tuple[str, ...]
    refusal: str = ""


def outlook(
    archives: Sequence[Archive],
    there: Mapping[str, Mapping[str, Any]],
    change: Change,
    now: datetime,
    objection: str = "",
) -> Outlook:
    """Judge a restore of `archives` by the streams that are there, as STREAM.INFO describes them by name.

    An `objection` is what is known to speak against it already.
    """
    # the broker's own declaration of an empty broker is nothing that anybody would miss
    is_empty = not any(_holds(there[name]) for name in _LIVES if name in there)
    deleted = [
        _described(there[archive.stream])
        for archive in archives
        if archive.stream in there
        and _holds(there[archive.stream])
        and not (is_empty and archive.stream == _CONFIG)
    ]
    aged = list(filter(None, (_aged(archive, change, now) for archive in archives)))
    refusals = [objection] if objection else []
    refusals += [one.words for one in aged if one.is_all]
    notes = [one.words for one in aged if not one.is_all]
    return Outlook(tuple(deleted), tuple(notes), "; ".join(refusals))


def grown(before: Outlook, now: Outlook) -> str:
    """Return why a restore that was agreed to by one outlook is not done by a later one; empty when it may be."""
    told = {_stream(line) for line in before.deleted}
    new = [line for line in now.deleted if _stream(line) not in told]
    return f"this has come meanwhile, and would be deleted: {'; '.join(new)}" if new else ""


def _stream(line: str) -> str:
    return line.partition(":")[0]


def _holds(info: Mapping[str, Any]) -> bool:
    return int(info["state"]["last_seq"]) > 0 and not is_closed(info["config"])


def _described(info: Mapping[str, Any]) -> str:
    state = info["state"]
    name, messages = info["config"]["name"], int(state["messages"])
    if not messages:
        return f"{name}: empty by now, made {_short(info['created'])}"
    return (
        f"{name}: {messages} messages ({format_size(int(state['bytes']))}) of {state.get('num_subjects', 0)} subjects, "
        f"sequences {state['first_seq']} to {state['last_seq']}, {_short(state['first_ts'])} to {_short(state['last_ts'])}"
    )


@dataclass(frozen=True, slots=True)
class _Aged:
    words: str
    is_all: bool


def _aged(archive: Archive, change: Change, now: datetime) -> _Aged | None:
    """Return what of an archive expires as soon as it is restored; None for nothing."""
    age = _max_age(archive, change)
    if not age or not archive.messages:
        return None
    name, edge, kept = archive.stream, now - age, format_duration(age)
    first, last = _time(archive.state["first_ts"]), _time(archive.state["last_ts"])
    if last < edge:
        words = f"everything in {name} is older than its max_age of {kept} and would expire at once"
        return _Aged(f"{words}: give --max-age (and the same to `logbroker run`)", is_all=True)
    if first < edge:
        words = (
            f"what {name} holds from before {_short(edge.isoformat())} is older than its max_age"
        )
        return _Aged(f"{words} of {kept} and expires at once; --max-age keeps it", is_all=False)
    return None


def _max_age(archive: Archive, change: Change) -> timedelta:
    if change.max_age is not None and archive.stream == STREAM:
        return change.max_age
    return timedelta(microseconds=int(archive.config.get("max_age", 0)) // 1000)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _short(time: str) -> str:
    return time[:19] + "Z"


def bound(archive: Archive, present: Mapping[str, Any] | None = None) -> int:
    """Return what a restored stream may hold, in bytes, -1 for no limit: as the `present` one, since it goes with the disk.

    One that is being restored has no limit of its own; then that of the archive counts.
    """
    if present is not None and not is_being_restored(present["config"]):
        return int(without_note(present["config"])["max_bytes"])
    return int(archive.config.get("max_bytes", -1))


def closed_config(
    archive: Archive, change: Change, present: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the configuration under which an archive is read in: nobody can publish to it yet.

    The storage is that of the `present` stream, where there is one (STREAM.INFO): a restore is the way from one storage
    to the other. It has no bound in bytes, for which a server would set store aside: after a crash that would stand in
    its own way.
    """
    config = without_note(archive.config) | {"max_bytes": -1}
    if present is not None:
        config["storage"] = present["config"].get("storage", "file")
    if change.replicas is not None:
        config["num_replicas"] = change.replicas
    if change.max_age is not None and archive.stream == STREAM:
        config["max_age"] = int(change.max_age.total_seconds()) * _NANOSECONDS
    return restoring(config, Ancestor(archive.created, archive.until), present)
