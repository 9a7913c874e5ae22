"""What `--once` must read before it ends, and whether that was read."""

import logging
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import replace

from nats_logship.app.exits import OperatorError
from nats_logship.app.text import format_count
from shipper.sources.files.paths import Selection, compression_of, expand_braces, has_magic
from shipper.sources.notices import Notice, NoticeKind
from shipper.sources.source import Source, SourceState

logger = logging.getLogger(__name__)


class Goals:
    """How far `--once` reads each file: to its end when the first scan had decided on all."""

    def __init__(self) -> None:
        self.scans_left = 5  # for files that are rotated while they are read
        self._ends: dict[str, int] = {}  # by file id

    def add(self, states: Iterable[SourceState]) -> None:
        """Aim for the present ends of these files, unless there is an aim already."""
        self._ends = {state.file: state.end for state in states} | self._ends

    def are_met(self, states: Iterable[SourceState]) -> bool:
        """Whether every file was read that far, and compressed ones to their end."""
        return all(
            state.position >= self._goal_of(state)
            and not state.is_awaited
            and (state.readable_since is None or compression_of(state.path) is None)
            for state in states
        )

    def are_awaited(self, states: Iterable[SourceState]) -> bool:
        """Whether more is expected than can be read now, such as the end of a last line."""
        return any(state.is_awaited for state in states)

    def conclude(self, source: Source, named: Collection[str]) -> None:
        """Log unfinished last lines; raises `OperatorError` for what was not read.

        A file that is refused is an error only if it was `named`, not if a glob shows it. A glob
        that shows no file is one, unless it is an alternative in braces of which another shows one.
        """
        states = source.files()
        for state in states:
            if state.unfinished:
                held = format_count(state.unfinished, "byte")
                logger.info("%s: %s of an unfinished last line held", state.path, held)
        for trouble in _select_errors(source.troubles, named):
            raise OperatorError(f"{trouble.path}: {trouble.text}; check {trouble.option}")
        for state in states:
            if state.position + state.unfinished < self._goal_of(state):
                reason = state.problem or "was rotated again and again"
                raise OperatorError(f"{state.path}: {reason}; run again to read the rest")
        if not source.has_decided:
            raise OperatorError("files were rotated again and again; run again to read the rest")

    def _goal_of(self, state: SourceState) -> int:
        # NULs that may be written over are not read, and do not count once they are seen
        return min(self._ends.get(state.file, 0), state.end)


def _select_errors(troubles: Collection[Notice], named: Collection[str]) -> Iterator[Notice]:
    missing = {one.path for one in troubles if one.kind is NoticeKind.MISSING}
    for one in troubles:
        is_shown_by_glob = one.kind is NoticeKind.REFUSED and one.path not in named
        if not (is_shown_by_glob or _is_alternative(one.path, named, missing)):
            yield one


def _is_alternative(glob: str, patterns: Iterable[str], missing: Set[str]) -> bool:
    """Whether another alternative of the pattern that a glob belongs to shows a file."""
    each = (expand_braces(pattern) for pattern in patterns if has_magic(glob))
    return any(glob in globs and not missing >= {*globs} for globs in each)


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
