"""What a restore would mean for a broker as it is: what it deletes, what speaks against it, what is to be known. Decides only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.app.units import format_duration, format_size
from broker.backup.archives import BUCKETS
from broker.backup.directory import Archive
from broker.retention.space import without_note
from broker.wire.descent import Ancestor, is_being_restored, is_closed, restoring

__all__ = ["Preview", "RestoreOptions", "closed_config", "limit_of", "preview"]

_NANOSECONDS = 1_000_000_000
_CONFIG = BUCKETS[2]


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What a restore changes of the archived configurations; None leaves it as it was."""

    replicas: int | None = None
    max_age: timedelta | None = None

    def max_age_of(self, archive: Archive) -> timedelta:
        """Return how long an archive's messages are kept once they are restored; 0 for ever."""
        if self.max_age is not None and archive.stream not in BUCKETS:
            return self.max_age
        return timedelta(microseconds=int(archive.config.get("max_age", 0)) // 1000)


@dataclass(frozen=True, slots=True)
class Preview:
    """Sentences for a person: what is deleted, by stream, what is to be known, and what speaks against it."""

    deletes: Mapping[str, str]
    notes: tuple[str, ...]
    refusals: tuple[str, ...]


def preview(
    archives: Sequence[Archive],
    present: Mapping[str, Mapping[str, Any]],
    options: RestoreOptions,
    now: datetime,
) -> Preview:
    """Judge a restore of these archives by the streams that are present (STREAM.INFO, by name)."""
    # the declaration of an empty broker is nothing that anybody would miss
    is_empty = not any(_holds(info) for name, info in present.items() if name != _CONFIG)
    deletes = {
        one.stream: _described(present[one.stream])
        for one in archives
        if one.stream in present
        and _holds(present[one.stream])
        and not (is_empty and one.stream == _CONFIG)
    }
    notes: list[str] = []
    refusals: list[str] = []
    for archive in archives:
        if words := _expired(archive, options, now):
            (refusals if words.startswith("everything") else notes).append(words)
    return Preview(deletes, tuple(notes), tuple(refusals))


def _holds(info: Mapping[str, Any]) -> bool:
    return int(info["state"]["last_seq"]) > 0 and not is_closed(info["config"])


def _described(info: Mapping[str, Any]) -> str:
    state, messages = info["state"], int(info["state"]["messages"])
    if not messages:
        return f"empty by now, made {_short(info['created'])}"
    return (
        f"{messages} messages ({format_size(int(state['bytes']))}) of {state.get('num_subjects', 0)} subjects, "
        f"sequences {state['first_seq']} to {state['last_seq']}, {_short(state['first_ts'])} to {_short(state['last_ts'])}"
    )


def _expired(archive: Archive, options: RestoreOptions, now: datetime) -> str:
    """Return what of an archive expires as soon as it is restored; empty for nothing."""
    age = options.max_age_of(archive)
    if not age or not archive.messages:
        return ""
    edge, kept = now - age, format_duration(age)
    first, last = (datetime.fromisoformat(archive.state[key]) for key in ("first_ts", "last_ts"))
    if last < edge:
        return (
            f"everything in {archive.stream} is older than its max_age of {kept} and would expire at once: give --max-age "
            "(and the same to `logbroker run`)"
        )
    if first < edge:
        return (
            f"what {archive.stream} holds from before {_short(edge.isoformat())} is older than its max_age of {kept} and "
            "expires at once; --max-age keeps it"
        )
    return ""


def _short(time: str) -> str:
    return time[:19] + "Z"


def limit_of(archive: Archive, present: Mapping[str, Any] | None) -> int:
    """Return the limit in bytes of a restored stream, -1 for none: that of the present one, since it goes with the disk.

    A stream that is being restored has no limit of its own; then that of the archive counts.
    """
    if present is not None and not is_being_restored(present["config"]):
        return int(without_note(present["config"])["max_bytes"])
    return int(archive.config.get("max_bytes", -1))


def closed_config(
    archive: Archive, options: RestoreOptions, present: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the configuration under which an archive is read in: nobody can publish to it yet.

    The storage is that of the `present` stream (STREAM.INFO): a restore is the way from one storage to the other. There is
    no limit in bytes, for which a server would set store aside: after a crash that would be in its own way.
    """
    config = without_note(archive.config) | {"max_bytes": -1}
    if present is not None:
        config["storage"] = present["config"].get("storage", "file")
    if options.replicas is not None:
        config["num_replicas"] = options.replicas
    if options.max_age is not None and archive.stream not in BUCKETS:
        config["max_age"] = int(options.max_age.total_seconds()) * _NANOSECONDS
    return restoring(config, Ancestor(archive.created, archive.until))
