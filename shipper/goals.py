"""What `--once` is to read: every file as far as it went at the first scan."""

import logging
from collections.abc import Iterable

from broker.app.exits import OperatorError
from shipper.tail.follower import Follower
from shipper.tail.paths import packing_of
from shipper.tail.tailer import Tailer

logger = logging.getLogger(__name__)


class Goals:
    """The size that each file had when the first scan had decided on all files, by file id."""

    def __init__(self) -> None:
        self.scans_left = 5  # for files that move while they are read
        self._sizes: dict[str, int] = {}

    def set(self, states: Iterable[Tailer]) -> None:
        """Aim for the sizes of these files; what was aimed for before stays."""
        self._sizes = {state.file: state.size for state in states} | self._sizes

    def are_met(self, states: Iterable[Tailer]) -> bool:
        """Whether every file has been read as far, and a compressed one, whose size was not known then, to its end."""
        return all(
            state.offset >= self._sizes.get(state.file, 0)
            and (state.since is None or packing_of(state.path) is None)
            for state in states
        )

    def conclude(self, follower: Follower) -> None:
        """Log what is held back at the end; raises `OperatorError` when files cannot be read, or were not."""
        states = follower.states()
        for state in states:
            if state.held:
                logger.info("%s: %d bytes of an unfinished last line held", state.path, state.held)
        for trouble in follower.troubles:
            raise OperatorError(f"{trouble.path}: {trouble.text}; check --file")
        for state in states:
            is_told = state.note and packing_of(state.path)  # of the damage
            if state.offset + state.held < self._sizes.get(state.file, 0) and not is_told:
                why = state.note or "was rotated again and again"
                raise OperatorError(f"{state.path}: {why}; start it again to read the rest")
        if not follower.is_oriented:
            raise OperatorError("files were rotated again and again; start it again")
