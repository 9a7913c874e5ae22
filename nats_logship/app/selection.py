"""Which lines are wanted, by the globs of a person: hosts and files. Decides only."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Globs of hosts and of files; none means all. `*` takes in dots and slashes, letters count in their case.

    A glob of files without a slash is one of names, whatever their folder. Lines of no known file match no glob of files.
    """

    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def wants_host(self, host: str) -> bool:
        """Whether the lines of a host are wanted."""
        return not self.hosts or any(fnmatchcase(host, glob) for glob in self.hosts)

    def wants_file(self, file: str) -> bool:
        """Whether the lines of a file are wanted; `file` is empty where it is not known."""
        name = file.rpartition("/")[2]
        found = (fnmatchcase(file if "/" in glob else name, glob) for glob in self.files if file)
        return not self.files or any(found)
