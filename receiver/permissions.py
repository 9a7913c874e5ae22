"""Who may read and write what is made under the output folder: modes and owner, as people write them (`0640`, `syslog:adm`, `1000`), and as values. The umask has no say in them."""

import grp
import pwd
from collections.abc import Callable
from dataclasses import dataclass

_LARGEST_ID = 2**32 - 2


@dataclass(frozen=True, slots=True)
class Permissions:
    """Modes of files and folders, and the ids of user and group they are given to; -1 leaves them as they come."""

    file: int = 0o640
    folder: int = 0o750
    user: int = -1
    group: int = -1


def checked_owner(text: str) -> tuple[int, int]:
    """Return the ids of `user`, `user:group` or `:group`, -1 for one that is not given; raises ValueError."""
    user, _, group = text.partition(":")
    return (
        _id("user", user, lambda: pwd.getpwnam(user).pw_uid),
        _id("group", group, lambda: grp.getgrnam(group).gr_gid),
    )


def _id(kind: str, name: str, look: Callable[[], int]) -> int:
    if not name or (name.isascii() and name.isdigit() and int(name) <= _LARGEST_ID):
        return int(name or -1)
    try:
        return look()
    except KeyError:
        raise ValueError(f"{kind} {name!r} is not known here; give a name or a number") from None


def checked_mode(text: str, least: int) -> str:
    """Return a mode with which the owner has at least these rights, and others cannot write; raises ValueError."""
    try:
        mode = int(text, 8)
    except ValueError:
        mode = 0
    if mode & least != least or mode & 0o002 or mode > 0o7777:
        raise ValueError(
            f"{text!r} is no mode that works here; the owner needs {least:04o}, others may not write: e.g. {least + 0o040:04o}"
        )
    return text
