"""Which files are followed, and where in them reading begins: what an operator chose. A value; looks at nothing."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from shipper.files.globs import pattern_of, within

__all__ = ["Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns of the files to follow and of those to leave out, all absolute.

    `from_end` says that a file which stands there at the first look and was never seen begins at its end.
    `ignore_older` is how long, in nanoseconds, a file may not have been written and still be taken up; None: any time.
    """

    patterns: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    from_end: bool = False
    ignore_older: int | None = None

    @classmethod
    def of(
        cls,
        patterns: Iterable[str],
        excluded: Iterable[str] = (),
        from_end: bool = False,
        ignore_older: int | None = None,
    ) -> "Selection":
        """Return the selection of patterns that may be relative to the working directory."""
        return cls(_absolute(patterns), _absolute(excluded), from_end, ignore_older)

    def shows(self, path: str) -> bool:
        """Whether a pattern shows a file of this path, and none leaves it out."""
        return any(
            pattern == path or pattern_of(pattern).fullmatch(path) for pattern in self.patterns
        ) and not self.excludes(path)

    def excludes(self, path: str) -> bool:
        """Whether a file or folder of this path is left out, by its own name or by that of a folder above it."""
        return any(within(pattern).fullmatch(path) for pattern in self.excluded)

    def covers(self, path: str, family: str) -> bool:
        """Whether a file at this path, of the family of that live path, is followed."""
        return (self.shows(path) or self.shows(family)) and not self.excludes(path)

    def is_too_old(self, modified: int, now: int) -> bool:
        """Whether a file that was never seen is passed over, for the time when it was last written."""
        return self.ignore_older is not None and now - modified > self.ignore_older


def _absolute(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.abspath(pattern) for pattern in patterns)  # noqa: PTH100 - Path would fold `//`, not `..`
