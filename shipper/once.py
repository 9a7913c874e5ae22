"""A run with `--once`: what it must find, how far it must read, and how it ends when it could not. Reads no file."""

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

from broker.app.exits import OperatorError
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection, packing_of
from shipper.tail.scan import scan
from shipper.tail.tailer import Tailer

__all__ = ["Goals", "require_files"]

logger = logging.getLogger(__name__)


class Goals:
    """The size of each file at the first scan, by file id; `scans_left` are those for files that move while they are read."""

    def __init__(self) -> None:
        self.scans_left = 5
        self._sizes: dict[str, int] = {}

    def aim(self, states: Iterable[Tailer]) -> None:
        """Add the files that have no goal yet."""
        self._sizes = {state.file: state.size for state in states} | self._sizes

    def are_met(self, states: Iterable[Tailer]) -> bool:
        """Whether every file has been read as far, and a compressed one, whose size was not known then, to its end."""
        return all(
            state.offset >= self._sizes.get(state.file, 0)
            and (state.since is None or packing_of(state.path) is None)
            for state in states
        )

    def conclude(self, follower: Follower) -> None:
        """Log which unfinished last lines are held; raises `OperatorError` when files cannot be read, or were not."""
        states = follower.states()
        for state in states:
            if state.held:
                logger.info("%s: %d bytes of an unfinished last line held", state.path, state.held)
        for trouble in follower.troubles():
            raise OperatorError(f"{trouble.path}: {trouble.text}; check --file")
        missed = [s.path for s in states if s.offset + s.held < self._sizes.get(s.file, 0)]
        if (missed and not self.scans_left) or not follower.is_oriented:
            what = missed[0] if missed else "files"
            raise OperatorError(f"{what} rotated again and again, and not read; start it again")


def require_files(selection: Selection) -> None:
    """Raise `OperatorError` for a pattern that shows no file which can be read."""
    for pattern in selection.patterns:
        found = scan(replace(selection, patterns=(pattern,)), ())
        lacks = [f"{trouble.path}: {trouble.text}" for trouble in found.troubles]
        for entry in found.entries:
            if entry.is_live and not os.access(entry.path, os.R_OK):
                lacks.append(f"{entry.path}: may not be read")
            elif entry.is_live:
                lacks.clear()
                break
        if lacks:
            raise OperatorError(f"{lacks[0]}; nothing was shipped; check --file")
