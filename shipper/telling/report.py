"""How a host's shipper stands, as it is shown to a person or a program. Values, and their form as plain JSON values.

Units are in the names, times are RFC 3339 in UTC, None is what cannot be known. Decides nothing but the words.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_origin

from shipper.filestate import FileState, Stage

__all__ = ["FileReport", "HostReport", "Trouble", "behind", "reason_for"]

_LARGEST_NUMBER = 2**63


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file; `position_bytes` is the next byte that is not acknowledged, `reason` why it does not move, if it does not.

    `oldest_unshipped_seconds` is how long the agent has known of the oldest line that is not acknowledged.
    """

    path: str
    file: str
    state: str
    reason: str
    size_bytes: int | None
    position_bytes: int
    behind_bytes: int | None
    oldest_unshipped_seconds: float | None = None
    bytes_per_second: float | None = None
    lines_per_second: float | None = None
    last_read: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A path that is asked for and not followed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostReport:
    """A host; `running` tells a report of the agent itself from one of the positions that it saved.

    `passed_over` are the paths of files that are not followed since they were not written for long (--ignore-older).
    `pid` and `user` are whose process answered. `sequence` is the stream's, of the last acknowledged block; `lost_bytes` are counted since `up_since`, by cause.
    """

    host: str
    agent: str
    sequence: int
    running: bool
    files: tuple[FileReport, ...]
    saved: str | None = None
    pid: int | None = None
    user: str | None = None
    up_since: str | None = None
    last_ack: str | None = None
    waiting_for: str = ""
    lost_bytes: Mapping[str, int] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def behind_bytes(self) -> int:
        """Bytes behind over all files of which it is known."""
        return sum(file.behind_bytes or 0 for file in self.files)

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        document = _plain(self)
        return {
            **document,
            "lost_bytes": dict(self.lost_bytes),
            "files": [_plain(file) for file in self.files],
            "troubles": [_plain(trouble) for trouble in self.troubles],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "HostReport":
        """Read what `document` gave, perhaps that of another version; raises ValueError when it is anything else."""
        try:
            files = tuple(FileReport(**_known(FileReport, file)) for file in document["files"])
            troubles = tuple(Trouble(**_known(Trouble, one)) for one in document["troubles"])
            passed = tuple(_of(document.get("passed_over", []), str))
            lost = dict(document.get("lost_bytes", {}))
            _of(lost.values(), int)
            known = {**_known(cls, document), "files": files, "troubles": troubles}
            return cls(**{**known, "passed_over": passed, "lost_bytes": lost})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no report of an agent: {error}") from None


def _plain(value: Any) -> dict[str, Any]:
    # asdict copies deeply, which takes ten times as long; there may be ten thousand files
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a document has of the fields of a kind; raises TypeError for a value of another type."""
    found = {one.name: document[one.name] for one in fields(kind) if one.name in document}
    for one in fields(kind):
        if one.name in found and get_origin(one.type) not in {tuple, Mapping}:
            _of([found[one.name]], one.type)
    return found


def _of(values: Iterable[Any], kind: Any) -> Iterable[Any]:
    for value in values:
        number = isinstance(value, int | float)
        # a number without a fraction may come as an integer, and NaN is within no limits
        if not isinstance(value, kind) and not (number and isinstance(0.0, kind)):
            raise TypeError(f"a {type(value).__name__} in the place of another type")
        if number and not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
            raise TypeError("a number that is too large")
    return values


def behind(state: FileState, position: int) -> int:
    """Return how many bytes of a file are there and not acknowledged."""
    return max(0, state.size - position)


def reason_for(state: FileState, position: int, waiting_for: str) -> str:
    """Return why a file does not move, empty when there is nothing to move or nothing in its way."""
    if state.note:
        return state.note
    if state.stage is Stage.DOUBTFUL:
        return "truncated or replaced, to be looked at"
    if not behind(state, position):
        return ""
    if state.held and state.held == behind(state, position):
        return "waits for the rest of its last line"
    return waiting_for
