"""A folder held open by a descriptor: what is in it is reached by name, and never through a link that another user made.

Root works in folders that belong to a service user, who can put a link, a pipe or a device in the place of any file.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

__all__ = ["Folder", "Owner", "give", "make_folder", "open_folder", "read_file"]

_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_LINKS = 40  # as the kernel has it
_ROOT = 0


class Owner(NamedTuple):
    """To whom a file belongs, by their numbers."""

    user: int
    group: int


class Folder:
    """An open folder; what it raises are OSErrors that name the file by its whole path."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over the descriptor; `path` is what people call the folder."""
        self.path = path
        self.descriptor = descriptor

    @property
    def owner(self) -> Owner:
        """To whom the folder belongs."""
        found = os.fstat(self.descriptor)
        return Owner(found.st_uid, found.st_gid)

    def open(self, name: str, flags: int, mode: int = 0o640) -> int:
        """Open a regular file, and return its descriptor; a link, a pipe or a device is refused, and waited for never."""
        with self._told(name):
            descriptor = os.open(name, flags | _FILE, mode, dir_fd=self.descriptor)
            try:
                _refuse_special(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor

    def read(self, name: str) -> bytes:
        """Return what a regular file holds."""
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def enter(self, name: str) -> "Folder":
        """Open a folder in this one."""
        with self._told(name):
            return Folder(self.path / name, os.open(name, _LIST, dir_fd=self.descriptor))

    def make(self, name: str, mode: int = 0o750) -> "Folder":
        """Open a folder in this one, which is made when it is not there, for the owner of this one."""
        try:
            os.mkdir(name, mode, dir_fd=self.descriptor)
        except FileExistsError:
            return self.enter(name)
        except OSError as error:
            error.filename = str(self.path / name)
            raise
        made = self.enter(name)
        if not made.names():
            _give(made.descriptor, self.owner)
        return made

    def names(self) -> list[str]:
        """Return the names of what is in it."""
        with self._told(""):
            return os.listdir(self.descriptor)  # noqa: PTH208 - of a descriptor

    def remove(self, name: str) -> None:
        """Remove a file; a link itself, never what it points to."""
        with self._told(name):
            os.unlink(name, dir_fd=self.descriptor)

    def rename(self, name: str, new: str) -> None:
        """Give a file another name in this folder, in the place of what has it."""
        with self._told(new):
            os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def link(self, name: str, new: str) -> None:
        """Give a file a second name in this folder, which nothing has there; raises FileExistsError where something has it."""
        with self._told(new):
            os.link(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def sync(self) -> None:
        """Have on disk the names that were made, changed or removed in it."""
        with self._told(""):
            os.fsync(self.descriptor)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
                kind = _kind(name, self.descriptor) or error.strerror
                raise OSError(error.errno, kind, str(self.path / name)) from None
            error.filename = str(self.path / name)
            raise

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self.descriptor)

    def __enter__(self) -> "Folder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def give(descriptor: int, owner: Owner) -> None:
    """Make root's own file that of `owner`; whoever is not root, or may not, leaves it as it is.

    One that holds something, or has a second name, stays as well: it is not new, and may be root's for a reason.
    """
    found = os.fstat(descriptor)
    if found.st_size == 0 and found.st_nlink == 1:
        _give(descriptor, owner)


def _give(descriptor: int, owner: Owner) -> None:
    if os.fstat(descriptor).st_uid == os.geteuid() == _ROOT:
        with suppress(PermissionError):  # root of a container may not be allowed to
            os.fchown(descriptor, *owner)


def open_folder(path: Path) -> Folder:
    """Open a folder that the user names; raises OSError.

    On the way a link is followed that belongs to root or to us, in a folder that does: nobody else can have planted it.
    """
    return _listed(path, None)


def make_folder(path: Path, mode: int = 0o750) -> Folder:
    """Open a folder as `open_folder` does, and make it when it is not there; raises OSError."""
    return _listed(path, mode)


def read_file(path: Path) -> bytes:
    """Return what a regular file holds that the user names; its links are followed as by `open_folder`. Raises OSError."""
    for _ in range(_MOST_LINKS):
        # whoever may read the file need not be allowed to list its folder
        with Folder(path.parent, _walk(path.parent, None)) as folder:
            try:
                return folder.read(path.name)
            except OSError as error:
                target = (
                    _target(folder.descriptor, path.name) if error.errno == errno.ELOOP else None
                )
                if target is None:
                    raise
            path = path.parent / target
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _listed(path: Path, mode: int | None) -> Folder:
    at = _walk(path, mode)
    try:
        return Folder(path, os.open(".", _LIST, dir_fd=at))
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(at)


def _walk(path: Path, mode: int | None) -> int:
    """Return a descriptor by which what is in a folder is reached, made with `mode`, and nothing more can be done."""
    ahead, links = list(reversed(path.absolute().parts[1:])), _MOST_LINKS
    at = os.open("/", _SEARCH)
    try:
        while ahead:
            name = ahead.pop()
            inner = _step(at, name, None if mode is None else (0o777 if ahead else mode))
            if isinstance(inner, int):
                os.close(at)
                at = inner
                continue
            links = _one_less(links)
            if inner.is_absolute():
                os.close(at)
                at = os.open("/", _SEARCH)
            ahead.extend(reversed([part for part in inner.parts if part != "/"]))
    except OSError as error:
        os.close(at)
        raise OSError(error.errno, error.strerror, str(path)) from None
    return at


def _step(at: int, name: str, mode: int | None) -> int | Path:
    """Return the descriptor of a folder, made with `mode` where it is not there, or what a link points to that we trust."""
    try:
        return os.open(name, _SEARCH, dir_fd=at)
    except FileNotFoundError:
        if mode is None:
            raise
        with suppress(FileExistsError):  # that's fine: somebody was quicker
            os.mkdir(name, mode, dir_fd=at)
        return os.open(name, _SEARCH, dir_fd=at)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        target = _target(at, name)
        if target is None:
            raise
        return target


def _target(at: int, name: str) -> Path | None:
    """Return what a link points to, None for what is no link; raises OSError for one that another user may have made."""
    found = os.stat(name, dir_fd=at, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        return None
    if not {found.st_uid, os.fstat(at).st_uid} <= {_ROOT, os.geteuid()}:
        raise OSError(errno.ELOOP, f"{name} is another user's link, which is not followed")
    return Path(os.readlink(name, dir_fd=at))


def _one_less(links: int) -> int:
    if not links:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return links - 1


def _refuse_special(descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is no regular file")


def _kind(name: str, folder: int) -> str:
    with suppress(OSError):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return "is a symbolic link, which is not followed"
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            return "is no regular file"
    return ""
