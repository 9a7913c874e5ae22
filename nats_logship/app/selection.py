"""Which lines a person wants, by globs of hosts and of files."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Globs of hosts and of files, without any all; `*` matches dots and slashes too.

    A glob of files without a slash is compared with the file's name, not with its path.
    """

    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def wants_host(self, host: str) -> bool:
        """Whether the lines of a host are wanted."""
        return not self.hosts or any(fnmatchcase(host, glob) for glob in self.hosts)

    def wants_file(self, file: str) -> bool:
        """Whether the lines of a file are wanted; an unknown file (empty) matches no glob."""
        name = file.rpartition("/")[2]
        found = (fnmatchcase(file if "/" in glob else name, glob) for glob in self.files if file)
        return not self.files or any(found)
