"""What a run with `--once` must find, how far it must read, and what is said when it could not. Reads no file."""

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import replace

from broker.app.exits import OperatorError
from shipper.files.discovery import scan
from shipper.files.selection import Selection
from shipper.filestate import FileState
from shipper.following.follower import Follower

__all__ = ["Goals", "conclude", "require_files"]

_LOOKS = 5
_ROTATING = 0.5  # seconds in which a file that is renamed is made anew
_AGAIN = "start it again to go on"
logger = logging.getLogger(__name__)


class Goals:
    """The ends of the files as they were first seen, by id; `looks_left` are those for what moves while it is read."""

    def __init__(self) -> None:
        """Begin with nothing to reach."""
        self.looks_left = _LOOKS
        self._ends: dict[str, int] = {}

    def aim(self, states: Iterable[FileState]) -> None:
        """Take up files that have no goal yet."""
        self._ends = {state.file: state.size for state in states} | self._ends

    def are_met(self, states: Iterable[FileState]) -> bool:
        """Whether all files have been read as far."""
        return all(state.offset >= self._ends.get(state.file, 0) for state in states)

    def missed(self, states: Iterable[FileState]) -> list[FileState]:
        """Return the files of which more than an unfinished last line is left."""
        return [s for s in states if s.offset + s.held < self._ends.get(s.file, 0)]


def require_files(selection: Selection, patience: float = _ROTATING) -> None:
    """Return when there is a file to read for each pattern; blocks, for `patience` seconds where there is none at first.

    Raises `OperatorError` for a pattern without one. Touches nothing.
    """
    if any(_lacks(selection, pattern) for pattern in selection.patterns):
        time.sleep(patience)
    for pattern in selection.patterns:
        if lack := _lacks(selection, pattern):
            raise OperatorError(f"{lack}; nothing was shipped; check --file")


def _lacks(selection: Selection, pattern: str) -> str:
    """Return why there is nothing to read for a pattern; empty where there is."""
    shown = scan(replace(selection, patterns=(pattern,)), ())
    standing = [sighting.path for sighting in shown.sightings if sighting.is_live]
    if any(os.access(path, os.R_OK) for path in standing):
        return ""
    if standing:
        return f"{standing[0]}: may not be read"
    return next((f"{trouble.path}: {trouble.text}" for trouble in shown.troubles), "")


def conclude(source: Follower, goals: Goals) -> None:
    """Say what is held back at the end of `once`; raises `OperatorError` when files cannot be read, or were not."""
    for state in source.states():
        if state.held:
            logger.info("%s: %d bytes of an unfinished last line held", state.path, state.held)
    if troubles := {notice.path: notice for notice in source.troubles()}:
        first = next(iter(troubles.values()))
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        raise OperatorError(f"{first.path}: {first.text}{more}; check --file")
    for state in () if goals.looks_left else goals.missed(source.states()):
        raise OperatorError(f"{state.path}: was moved again and again, and is not read; {_AGAIN}")
    if not source.is_oriented:
        raise OperatorError(f"files were rotated again and again, and are not read; {_AGAIN}")
