"""The headers of journal files, as https://systemd.io/JOURNAL_FILE_FORMAT documents them.

They say which entries are left; entries themselves are read by `journalctl`.
"""

import os
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_SIGNATURE = b"LPKSHHRH"
# signature, flags, state, ids of file, machine and boot, seqnum_id, sizes and offsets, n_entries,
# seqnum of the last and the first entry, entry array, times of the first and the last entry
_HEADER = struct.Struct("<8s8xB55x16s64x3Q8x2Q")
_ARCHIVED = 2  # such a file does not change any more
_NAME = re.compile(r".+\.journal~?")
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MACHINE_ID = Path("/etc/machine-id")
_PATIENCE = 60.0  # seconds
_ROOTS = ("/var/log/journal", "/run/log/journal")


class JournalFile(NamedTuple):
    """A journal file with entries `[head, tail]`, of which it has `entries`.

    Several files may have one `journal` (seqnum_id, hex). Times are microseconds since the epoch.
    """

    path: str
    journal: str
    head: int
    tail: int
    entries: int
    head_time: int
    tail_time: int
    is_archived: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What differs between files that are at one path, one after the other."""
        return self.path, self.head


def parse_header(path: str, data: bytes) -> JournalFile | None:
    """Return what the first bytes of a file say; None if it has no entries or is no journal."""
    if len(data) < _HEADER.size:
        return None
    found = _HEADER.unpack_from(data)
    signature, state, journal, count, tail, head, head_time, tail_time = found
    if signature != _SIGNATURE or not 0 < head <= tail < 2**63 - 1:
        return None
    return JournalFile(
        path=path,
        journal=journal.hex(),
        head=head,
        tail=tail,
        entries=count,
        head_time=head_time,
        tail_time=tail_time,
        is_archived=state == _ARCHIVED,
    )


def _list_folders(folder: str) -> Iterator[str]:
    """Yield the folders of a journal: `folder` and those of machines in it, or this machine's."""
    if folder:
        yield folder
        inner = (one for one in os.scandir(folder) if _ID.fullmatch(one.name.split(".")[0]))
        yield from sorted(one.path for one in inner if one.is_dir())
        return
    machine = _MACHINE_ID.read_text("utf-8", "replace").strip() if _MACHINE_ID.exists() else ""
    if not _ID.fullmatch(machine):
        what = (
            f"{_MACHINE_ID} has no machine id, so the folder of this machine's journal is unknown"
        )
        raise FileNotFoundError(f"{what}: give --journal-directory")
    found = [one for root in _ROOTS if (one := Path(root, machine)).is_dir()]
    if not found:
        raise FileNotFoundError(f"no journal of this machine below {' or '.join(_ROOTS)}")
    yield from map(str, found)


class JournalFolder:
    """The journal files of `folder`, or of this machine's journal if that is empty."""

    def __init__(self, folder: str) -> None:
        self.trouble = ""
        """Why files of the journal cannot be read, as of the last `list_files`; empty for no."""
        self._since = 0.0  # when the trouble was first seen, by the monotonic clock
        self._folder, self._has_listed = folder, False
        self._archived: dict[tuple[str, int], JournalFile] = {}  # by path and inode

    def list_files(self) -> list[JournalFile]:
        """Return the files that have entries, by their headers."""
        before, self.trouble = self.trouble, ""
        found = self._list_files()
        if self.trouble != before:
            self._since = time.monotonic()
        return found

    @property
    def may_recover(self) -> bool:
        """Whether a trouble is so new that it may soon be over, or is one of the whole folder."""
        is_new = time.monotonic() - self._since < _PATIENCE
        return bool(self.trouble) and (is_new or not self._has_listed)

    def _list_files(self) -> list[JournalFile]:
        self._has_listed = False
        archived: dict[tuple[str, int], JournalFile] = {}
        found, names = [], 0
        try:
            folders = list(_list_folders(self._folder))
            entries = [one for at in folders for one in os.scandir(at)]
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return []
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                names += 1
                key = entry.path, entry.inode()
                one = self._archived.get(key) or self._read(entry.path)
                if one is not None:
                    found.append(one)
                    archived |= {key: one} if one.is_archived else {}
        self._archived, self._has_listed = archived, True
        if not names:
            self.trouble = "no journal files are in it"
        return found

    def _read(self, path: str) -> JournalFile | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:  # vacuumed meanwhile
            return None
        except OSError as error:
            self.trouble = f"{path}: {error.strerror}; the agent's user needs the right to read it"
            return None
        try:
            return parse_header(path, os.read(descriptor, _HEADER.size))
        except OSError as error:
            self.trouble = f"{path}: {error.strerror}"
            return None
        finally:
            os.close(descriptor)
