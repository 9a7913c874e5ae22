"""Which lines are wanted, by the globs of a person: hosts and files. Decides only."""

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cache


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Globs of hosts and of files; none means all. `*` takes in dots and slashes, letters count in their case.

    A glob of files without a slash is one of names, whatever their folder. Lines of no known file match no glob of files.
    """

    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def wants_host(self, host: str) -> bool:
        """Whether the lines of a host are wanted."""
        return not self.hosts or any(_pattern(glob).match(host) for glob in self.hosts)

    def wants_file(self, file: str) -> bool:
        """Whether the lines of a file are wanted; `file` is empty where it is not known."""
        if not self.files:
            return True
        name = file.rpartition("/")[2]
        return any(
            _pattern(glob).match(file if "/" in glob else name) for glob in self.files if file
        )


@cache
def _pattern(glob: str) -> "re.Pattern[str]":
    return re.compile(translate(glob))
