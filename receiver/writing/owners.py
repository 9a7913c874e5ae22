"""Which partition writes a host's file: the first that had lines of it, for ever.

A host belongs to one partition, so that this never matters, unless a plain NATS client publishes a host's lines under
another partition. Two writers of one file would undo each other's lines; the second partition gets a file of its own,
`<host>..p<N>.log`: no host's name holds two dots in a row. The register stands beside the files that it is about.

It also keeps files and folders apart: a path that was a source file and is a folder now cannot be both below the output.

And it counts what a host has, where each of its files has one of its own: names of files cost a host nothing to make up. Those
that count are names of one file, so that their number is that file's count of links. Beyond it a host's lines go to one file.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from receiver.writing.folders import make_within, within
from receiver.writing.known import Damaged
from receiver.writing.layout import (
    Days,
    Layout,
    folder_key,
    host_key,
    register_keys,
    source_key,
)
from receiver.writing.logbook import sync_folder
from receiver.writing.opening import descriptor_of, is_regular, opened

__all__ = ["KnownOwners", "Owners", "Unregistered", "owner_of"]

_FOLDER = ".owners"
_DEFAULT = Layout()
_MARK = b"p"
_WAY_OUT = "remove it, and the next partition that has lines for that file makes it again"
_MOST_KNOWN = (
    20_000  # names of up to 5 KiB; whoever makes up files without end costs time, not memory
)
_MOST_OF_HOST = (
    40_000  # files and folders: those of 10,000 containers; a file of ext4 may have 65,000 names
)

_Source = tuple[str, str | None, str]
_known: dict[tuple[Path, int, Layout], dict[_Source, str]] = {}
_told: set[tuple[Path, str]] = set()
_synced: set[Path] = set()
"""Registers all of whose names this process has brought to disk; one that it finds may hold others."""


class Owners:
    """The names of live files, and the register of them in the output folder, as one partition asks for them."""

    def __init__(
        self,
        output: Path,
        partition: int,
        layout: Layout = _DEFAULT,
        days: Days | None = None,
        most_of_host: int = _MOST_OF_HOST,
    ) -> None:
        """Use the folder `.owners` of the output folder; `days` tell the date of a moment."""
        self._output = output
        self._folder = output / _FOLDER
        self._partition = partition
        self._layout = layout
        self._days = days or Days()
        self._seed = f"{_FOLDER}/.p{partition}"
        self._has_seed = False
        self._known = _known.setdefault((self._folder, partition, layout), {})
        self._most_of_host = most_of_host
        self._overflows: dict[tuple[str, str], str] = {}

    def live_name(self, host: str, file: str | None = None, moment: int = 0) -> str:
        """Return the live file that this partition writes for lines of a host's file stored at a moment; raises OSError.

        What is new in the register is on disk after `sync`.
        """
        layout = self._layout
        date = self._days.date(moment) if layout.has_date else ""
        source = (host, file if layout.has_file else None, date)
        if (name := self._known.get(source)) is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            name = self._known[source] = self._claim(*source)
        return name

    def _claim(self, host: str, file: str | None, date: str) -> str:
        if self._layout.has_file and not self._has_own(host, file):
            return self._overflow(host, date)
        return self._first(
            host, (self._layout.path(host, file, date, mark) for mark in self._marks)
        )

    def _overflow(self, host: str, date: str) -> str:
        if (live := self._overflows.get((host, date))) is None:
            lives = (self._layout.overflow(host, date, mark) for mark in self._marks)
            live = self._overflows[host, date] = self._first(host, lives)
        return live

    def _first(self, host: str, lives: Iterable[str]) -> str:
        """Return the first of some live files that is this partition's, by now."""
        path = ""
        for live in lives:
            path = self._untangled(live, host) if self._layout.has_file else live
            if self._register(path):
                return path
        words = "is in the register of another partition; give it back"
        raise OSError(errno.EEXIST, words, str(self._output / path))

    @property
    def _marks(self) -> tuple[str, str]:
        return "", f"..p{self._partition}"

    def notices(self) -> list[str]:
        """Tell of hosts that have too many files, each host once for each process."""
        notices = []
        for (host, _), live in self._overflows.items():
            if (self._folder, host) not in _told:
                _told.add((self._folder, host))
                notices.append(
                    f"host {host} has sent lines of too many files ({self._most_of_host:,} files and folders here, removed "
                    f"ones among them): lines of further ones go to {live}; find out what makes so many files there"
                )
        return notices

    def _has_own(self, host: str, file: str | None) -> bool:
        """Say whether a host's file has a live file of its own, now and for ever."""
        key = source_key(host, file)
        if self._is_entered(key):
            return True
        return self._count(host) < self._most_of_host and self._link_counted(key, host)

    def _count(self, host: str) -> int:
        with (
            suppress(FileNotFoundError),
            within(self._output, f"{_FOLDER}/{host_key(host)}") as counter,
        ):
            return counter.lstat().st_nlink
        return 0

    def _untangled(self, live: str, host: str) -> str:
        """Return a path none of whose folders is a live file, and which is no folder of another."""
        *folders, name = live.split("/")
        path = ""
        for folder in folders:
            is_file = not self._is_folder(path + folder) and self._is_file(path + folder)
            path += f"{folder}..%%d" if is_file else folder
            self._enter(folder_key(path), host)
            path += "/"
        is_folder = self._is_folder(path + name) and not self._is_file(path + name)
        return f"{path}{name}..%%f" if is_folder else path + name

    def _is_file(self, path: str) -> bool:
        return owner_of(self._output, path) is not None

    def _is_folder(self, path: str) -> bool:
        return self._is_entered(folder_key(path))

    def _is_entered(self, key: str) -> bool:
        with suppress(FileNotFoundError), within(self._output, f"{_FOLDER}/{key}") as entry:
            return is_regular(entry)
        return False

    def _register(self, live: str) -> bool:
        """Say whether a live file is this partition's, by now."""
        keys = register_keys(live)
        key = keys[-1] if self._layout.has_date else keys[0]
        owners = {_read(self._output, name) for name in keys} - {None}
        if not owners and self._link(key):
            return True
        return (owners or {_read(self._output, key)}) == {self._partition}

    def _enter(self, key: str, host: str) -> None:
        if not self._is_entered(key) and not self._link_counted(key, host):
            self._link(key)

    def _link_counted(self, key: str, host: str) -> bool:
        """Have a name in the register that counts for a host; False where no more can. Raises OSError."""
        _synced.discard(self._folder)
        make_within(self._output, _FOLDER)
        with within(self._output, f"{_FOLDER}/{host_key(host)}") as counter:
            os.close(descriptor_of(counter, os.O_WRONLY | os.O_CREAT))
            try:
                os.link(counter, counter.with_name(key), follow_symlinks=False)
            except FileExistsError:
                pass  # that's fine: another partition was quicker
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                return False
        return True

    def _link(self, key: str) -> bool:
        """Have a name in the register; False when another partition was quicker. Raises OSError."""
        _synced.discard(self._folder)
        if not self._has_seed:
            self._make_seed()
        try:
            self._link_seed(key)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            self._make_seed()
            self._link_seed(key)
        return True

    def _link_seed(self, key: str) -> None:
        with within(self._output, self._seed) as seed:
            # appears whole or not at all, and never replaces another's
            os.link(seed, seed.with_name(key), follow_symlinks=False)

    def _make_seed(self) -> None:
        """Make the one file on disk that all entries of this partition are names of: 5,000 of them cost no 5,000 syncs."""
        make_within(self._output, _FOLDER)
        with within(self._output, self._seed) as seed:
            seed.unlink(missing_ok=True)
            with seed.open("xb") as file:
                file.write(_entry(self._partition))
                file.flush()
                os.fsync(file.fileno())
        self._has_seed = True

    def sync(self) -> None:
        """Bring the register to disk, before anything is written to the files it names; raises OSError."""
        if self._folder in _synced:
            return
        with suppress(FileNotFoundError), within(self._output, self._seed) as seed:
            seed.unlink(missing_ok=True)
            self._has_seed = False
            sync_folder(seed.parent)
            _synced.add(self._folder)


class KnownOwners(Owners):
    """The names of live files as `Owners` gives them, to who only reads: nothing is registered."""

    def __init__(
        self,
        output: Path,
        partition: int,
        layout: Layout,
        days: Days,
        most_of_host: int = _MOST_OF_HOST,
    ) -> None:
        """Know no name yet."""
        super().__init__(output, partition, layout, days, most_of_host)
        self._known = {}  # of a name that is not registered yet nobody else may learn

    def _enter(self, key: str, host: str) -> None:
        """Do nothing."""

    def _link_counted(self, key: str, host: str) -> bool:
        return True

    def _register(self, live: str) -> bool:
        owners = {_read(self._output, name) for name in register_keys(live)} - {None}
        return owners <= {self._partition}


class Unregistered(Owners):
    """The names of live files in a folder that nobody else writes to: what is taken is remembered here alone."""

    def __init__(
        self, output: Path, layout: Layout, days: Days, most_of_host: int = _MOST_OF_HOST
    ) -> None:
        """Know no name yet."""
        super().__init__(output, 0, layout, days, most_of_host)
        self._known = {}
        self._taken: set[str] = set()
        self._counts = Counter[str]()

    def _is_entered(self, key: str) -> bool:
        return key in self._taken

    def _count(self, host: str) -> int:
        return self._counts[host]

    def _link_counted(self, key: str, host: str) -> bool:
        self._taken.add(key)
        self._counts[host] += 1
        return True

    def untangled(self, live: str) -> str:
        """Return a path for a live file that is in no other's way, and register it."""
        path = self._untangled(live, "")
        self._register(path)
        return path

    def _is_file(self, path: str) -> bool:
        return not self._taken.isdisjoint(register_keys(path))

    def _register(self, live: str) -> bool:
        self._taken.add(register_keys(live)[-1])
        return True


def owner_of(output: Path, live: str) -> int | None:
    """Return the partition that writes a live file, None when the register does not know; raises OSError."""
    owners = (_read(output, key) for key in register_keys(live))
    return next((owner for owner in owners if owner is not None), None)


def _read(output: Path, key: str) -> int | None:
    try:
        with within(output, f"{_FOLDER}/{key}") as path, opened(path, "rb") as file:
            entry = file.read(40)
    except FileNotFoundError:
        return None
    digits = entry.removeprefix(_MARK).partition(b" ")[0]
    owner = int(digits) if digits.isdigit() else None
    if owner is None or entry != _entry(owner):
        raise Damaged(
            f"{output / _FOLDER / key} is damaged: it does not say which partition writes; {_WAY_OUT}"
        )
    return owner


def _entry(partition: int) -> bytes:
    number = b"%b%d" % (_MARK, partition)
    return b"%b %08x" % (number, crc32(number))
