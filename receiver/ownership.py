"""Modes, users and groups as people write them: `0640`, `syslog:adm`, `1000`; resolved where the receiver is started."""

import grp
import os
import pwd
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from broker.app.exits import ConfigurationError
from receiver.permissions import Permissions

__all__ = ["FileMode", "FolderMode", "Mode", "owner_name", "permissions_of"]


class Mode(int):
    """The mode of a file or folder, which people read as an octal number."""

    def __str__(self) -> str:
        """Return it as it is given."""
        return f"{int(self):04o}"


_MODE = re.compile(r"(?:0o)?0*([0-7]{3,4})")
_LARGEST_ID = 2**32 - 2


def permissions_of(file: int, folder: int, owner: str) -> Permissions:
    """Return modes and ids; raises ConfigurationError when this process has not the rights to give them.

    They are plain numbers: a `Mode` would bring this module, and pydantic, into every worker.
    """
    user, _, group = owner.partition(":")
    wanted = Permissions(int(file), int(folder), _user(user), _group(group))
    if os.geteuid() == 0:
        return wanted
    if wanted.user not in (-1, os.geteuid()):
        raise ConfigurationError(
            f"only root may give files to {user}; run as root, or as {user}, or leave --owner out"
        )
    if wanted.group not in (-1, os.getegid(), *os.getgroups()):
        raise ConfigurationError(
            f"this user is no member of group {group}, so that it cannot give files to it; "
            "make it a member, or choose another --owner"
        )
    return wanted


def owner_name(text: str) -> str:
    """Return `user`, `user:group` or `:group`, whose names are known here; raises ValueError."""
    user, _, group = text.partition(":")
    _user(user)
    _group(group)
    return text


def _user(name: str) -> int:
    return _id("user", name, lambda: pwd.getpwnam(name).pw_uid)


def _group(name: str) -> int:
    return _id("group", name, lambda: grp.getgrnam(name).gr_gid)


def _id(kind: str, name: str, look: Callable[[], int]) -> int:
    if not name or (name.isascii() and name.isdigit() and int(name) <= _LARGEST_ID):
        return int(name or -1)
    try:
        return look()
    except KeyError:
        raise ValueError(f"{kind} {name!r} is not known here; give a name or a number") from None


def _mode(value: object, least: int, example: str) -> Mode:
    if isinstance(value, Mode):
        return value
    found = _MODE.fullmatch(value) if isinstance(value, str) else None
    mode = int(found[1], 8) if found else 0
    if mode & least != least or mode & 0o002:
        raise ValueError(
            f"{value!r} is no mode that works here; write e.g. {example}, others may not write"
        )
    return Mode(mode)


_FILE, _FOLDER = (
    "0640: the owner must read and write its files",
    "0750: the owner must get into its folders",
)
FileMode = Annotated[
    Mode, PlainValidator(lambda value: _mode(value, 0o600, _FILE)), PlainSerializer(str)
]
FolderMode = Annotated[
    Mode, PlainValidator(lambda value: _mode(value, 0o700, _FOLDER)), PlainSerializer(str)
]
