"""Real journals, written by systemd-journal-remote, which numbers entries as journald does."""

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_REMOTE = "/lib/systemd/systemd-journal-remote"
_MANY_FIELDS = 280  # field names that fill a file's table of them, so that it is rotated
_BOOT = "4d6a2b9a1e0c4c7e9b2f6f1e5c3a2b1d"
_BEGIN = 1_790_000_000_000_000  # microseconds since the epoch


def have_journal() -> bool:
    """Whether journals can be written and read here."""
    return bool(shutil.which("journalctl") and shutil.which(_REMOTE))


needs_journal = pytest.mark.skipif(
    not have_journal(),
    reason="journalctl (systemd) and systemd-journal-remote are not installed",
)


class JournalWriter:
    """Writes entries `entry 00000000` and so on to a journal file.

    `folder` must be there. `clock` is the time of the next entry, in microseconds since the epoch;
    `boot` is the id of the machine's boot, and `program` the name of what writes.
    """

    def __init__(self, folder: Path, name: str = "system") -> None:
        self.path = folder / f"{name}.journal"
        self.clock, self.tick = _BEGIN, 1000
        self.boot, self.program = _BOOT, "app"
        self._lines: list[bytes] = []
        self.written = 0
        self._begin = 1  # the first entry of the file that is written

    def write(self, count: int, **fields: str) -> list[str]:
        """Write entries; return their messages."""
        messages = [f"entry {self.written + number:08d}" for number in range(count)]
        for message in messages:
            self._lines.append(self._encode({"MESSAGE": message, **fields}))
            self.written += 1
        self._flush()
        return messages

    def put(self, **fields: str | bytes) -> None:
        """Write one entry of these fields alone."""
        self._lines.append(self._encode(fields))
        self._flush()

    def put_all(self, *entries: Sequence[tuple[str, str | bytes]]) -> None:
        """Write an entry of each list of fields, which may have the same name."""
        for fields in entries:
            head = self._encode({}).removesuffix(b"\n")
            self._lines.append(head + b"".join(_encode(*one) for one in fields) + b"\n")
        self._flush()

    def rotate(self) -> str:
        """Have the file archived, by an entry whose message is returned, and another one after."""
        names = {f"FIELD_{self.written}_{number}": "x" for number in range(_MANY_FIELDS)}
        (message,) = self.write(1, **names)
        return message

    def archive(self) -> tuple[Path, range]:
        """Have all entries up to now archived, and write one more; return the file and its entries.

        Entries are numbered from 1.
        """
        self.rotate()
        entries, known = range(self._begin, self.written + 1), set(self.archives())
        self.write(1)
        self._begin = entries.stop
        (path,) = set(self.archives()) - known
        return path, entries

    def _encode(self, fields: Mapping[str, str | bytes]) -> bytes:
        facts = {
            "__REALTIME_TIMESTAMP": str(self.clock),
            "__MONOTONIC_TIMESTAMP": str(1000 + self.written),
            "_BOOT_ID": self.boot,
            "_HOSTNAME": "web01",
            "SYSLOG_IDENTIFIER": self.program,
            "_PID": "7",
        }
        self.clock += self.tick
        return b"".join(_encode(*item) for item in (facts | dict(fields)).items()) + b"\n"

    def _flush(self) -> None:
        data, self._lines = b"".join(self._lines), []
        command = [_REMOTE, f"--output={self.path}", "-"]
        done = subprocess.run(command, input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def archives(self) -> list[Path]:
        """Return the files that were rotated away, the oldest first."""
        return sorted(self.path.parent.glob(f"{self.path.stem}@*.journal"))


def _encode(name: str, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    if b"\n" not in data and data.isascii():
        return b"%b=%b\n" % (name.encode(), data)
    return b"%b\n%b%b\n" % (name.encode(), struct.pack("<Q", len(data)), data)


def show(folder: Path, output: str, *options: str) -> bytes:
    """Return what journalctl prints of a folder."""
    command = ["journalctl", "--quiet", "--all", f"--directory={folder}", f"--output={output}"]
    return subprocess.run([*command, *options], capture_output=True, check=True).stdout
