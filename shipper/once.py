"""A run with `--once`: what it must find, how far it must read, and how it ends when it could not. Reads no file."""

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import replace

from broker.app.exits import OperatorError
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection, packing_of
from shipper.tail.scan import scan
from shipper.tail.tailer import FileState

__all__ = ["Goals", "require_files"]

_SCANS = 5
_ROTATING = 0.5  # seconds in which a file that is renamed is made anew
logger = logging.getLogger(__name__)


class Goals:
    """The size of each file at the first scan, by file id; `scans_left` are those for files that move while they are read."""

    def __init__(self) -> None:
        self.scans_left = _SCANS
        self._sizes: dict[str, int] = {}

    def aim(self, states: Iterable[FileState]) -> None:
        """Add the files that have no goal yet."""
        self._sizes = {state.file: state.size for state in states} | self._sizes

    def are_met(self, states: Iterable[FileState]) -> bool:
        """Whether every file has been read as far, and a compressed one, whose size was not known then, to its end."""
        return all(self._is_met(state) for state in states)

    def _is_met(self, state: FileState) -> bool:
        if packing_of(state.path) is not None and state.since is not None:
            return False
        return state.offset >= self._sizes.get(state.file, 0)

    def conclude(self, follower: Follower) -> None:
        """Log which unfinished last lines are held; raises `OperatorError` when files cannot be read, or were not."""
        states = follower.states()
        for state in states:
            if state.held:
                logger.info("%s: %d bytes of an unfinished last line held", state.path, state.held)
        if troubles := {notice.path: notice for notice in follower.troubles()}:
            first = next(iter(troubles.values()))
            more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
            raise OperatorError(f"{first.path}: {first.text}{more}; check --file")
        missed = [s.path for s in states if s.offset + s.held < self._sizes.get(s.file, 0)]
        if (missed and not self.scans_left) or not follower.is_oriented:
            what = missed[0] if missed else "files"
            raise OperatorError(
                f"{what} rotated again and again, and not read; start it again to go on"
            )


def require_files(selection: Selection) -> None:
    """Return when there is a file to read for each pattern; blocks for a moment where one has none at first.

    Raises `OperatorError` for a pattern without a file.
    """
    if any(_lacks(selection, pattern) for pattern in selection.patterns):
        time.sleep(_ROTATING)
    for pattern in selection.patterns:
        if lack := _lacks(selection, pattern):
            raise OperatorError(f"{lack}; nothing was shipped; check --file")


def _lacks(selection: Selection, pattern: str) -> str:
    """Return why there is nothing to read for a pattern; empty where there is."""
    found = scan(replace(selection, patterns=(pattern,)), ())
    live = [entry.path for entry in found.entries if entry.is_live]
    if any(os.access(path, os.R_OK) for path in live):
        return ""
    if live:
        return f"{live[0]}: may not be read"
    return next((f"{trouble.path}: {trouble.text}" for trouble in found.troubles), "")
