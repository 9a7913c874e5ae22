"""What `--once` must read before it ends, and whether that was read."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from nats_logship.app.exits import OperatorError
from nats_logship.app.text import format_count
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Selection, compression_of, has_magic
from shipper.sources.notices import NoticeKind

logger = logging.getLogger(__name__)


class Goals:
    """How far `--once` reads each file: to its size when the first scan had decided on all."""

    def __init__(self) -> None:
        self.scans_left = 5  # for files that are rotated while they are read
        self._sizes: dict[str, int] = {}  # by file id

    def add(self, states: Iterable[FollowedFile]) -> None:
        """Aim for the present sizes of these files, unless there is an aim already."""
        self._sizes = {state.file: state.size for state in states} | self._sizes

    def are_met(self, states: Iterable[FollowedFile]) -> bool:
        """Whether every file was read that far, and compressed ones to their end."""
        return all(
            state.offset + state.padding >= self._sizes.get(state.file, 0)
            and (state.readable_since is None or compression_of(state.path) is None)
            for state in states
        )

    def are_waited_for(self, follower: Follower) -> bool:
        """Whether files wait for the end of a rotated file's last line."""
        return any(
            state.offset < self._sizes.get(state.file, 0) and follower.is_waited_for(state)
            for state in follower.files()
        )

    def conclude(self, follower: Follower, named: Collection[str]) -> None:
        """Log unfinished last lines; raises `OperatorError` for files that were not read.

        A file that is refused is an error only if it was `named`, not if a glob shows it.
        """
        states = follower.files()
        for state in states:
            if state.unfinished:
                held = format_count(state.unfinished, "byte")
                logger.info("%s: %s of an unfinished last line held", state.path, held)
        for trouble in follower.troubles:
            if trouble.kind is NoticeKind.REFUSED and trouble.path not in named:
                continue
            raise OperatorError(f"{trouble.path}: {trouble.text}; check --file")
        for state in states:
            is_damaged = state.problem and compression_of(state.path)  # which was logged
            read = state.offset + state.unfinished + state.padding
            if read < self._sizes.get(state.file, 0) and not is_damaged:
                reason = state.problem or "was rotated again and again"
                raise OperatorError(f"{state.path}: {reason}; run again to read the rest")
        if not follower.has_decided:
            raise OperatorError("files were rotated again and again; run again to read the rest")


def require_files(selection: Selection) -> None:
    """Raise `OperatorError` for a path that cannot be read, or if no glob shows a readable file.

    A glob without a readable file does not keep other files waiting; `conclude` reports it.
    """
    from shipper.status.show import Level, check_files  # which other agents do not need

    lacking = {}
    for pattern in selection.patterns:
        found = list(check_files(replace(selection, patterns=(pattern,))))
        bad = [one.text for one in found if one.level is Level.BAD]
        if bad and not any(one.level is Level.FINE for one in found):
            lacking[pattern] = bad[0]
    is_none_readable = len(lacking) == len(selection.patterns)
    for pattern, text in lacking.items():
        if is_none_readable or not has_magic(pattern):
            raise OperatorError(f"{text}; nothing was shipped; check --file")
