"""Who may read and write what is made under the output folder: modes and owner, as values. The umask has no say in them."""

from dataclasses import dataclass

__all__ = ["Permissions"]


@dataclass(frozen=True, slots=True)
class Permissions:
    """Modes of files and folders, and the ids of user and group they are given to; -1 leaves them as they come."""

    file: int = 0o640
    folder: int = 0o750
    user: int = -1
    group: int = -1
