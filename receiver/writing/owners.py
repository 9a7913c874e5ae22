"""Which partition writes a host's file: the first that had lines of it, for ever.

A host belongs to one partition, so that this never matters, unless a plain NATS client publishes a host's lines under
another partition. Two writers of one file would undo each other's lines; the second partition gets a file of its own,
`<host>..p<N>.log`: no host's name holds two dots in a row. The register stands beside the files that it is about.
"""

import os
from pathlib import Path

from receiver.writing import rotation
from receiver.writing.files import make_folder
from receiver.writing.logbook import named, sync_folder

__all__ = ["Owners", "known_name", "owner_of"]

_FOLDER = ".owners"
_known: dict[tuple[Path, int, str], str] = {}


class Owners:
    """The register of hosts in the output folder, as one partition asks it."""

    def __init__(self, output: Path, partition: int) -> None:
        """Use the folder `.owners` of the output folder."""
        self._folder = output / _FOLDER
        self._partition = partition

    def live_name(self, host: str) -> str:
        """Return the name of the live file that this partition writes for a host; raises OSError."""
        key = (self._folder, self._partition, host)
        if key not in _known:
            _known[key] = self._claim(rotation.stem_of(host))
        return _known[key]

    def _claim(self, stem: str) -> str:
        path = self._folder / stem
        if not path.exists():
            self._register(path)
        if path.read_bytes() == self._mine:
            return rotation.live_name(stem)
        return self._claim(f"{stem}..p{self._partition}")

    def _register(self, path: Path) -> None:
        make_folder(self._folder)
        fresh = self._folder / f".p{self._partition}"
        with named(fresh), fresh.open("wb") as file:
            file.write(self._mine)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)  # appears whole or not at all, and never replaces another's
        except FileExistsError:
            pass  # that's fine: another partition was quicker
        finally:
            fresh.unlink()
        sync_folder(self._folder)

    @property
    def _mine(self) -> bytes:
        return str(self._partition).encode()


def known_name(output: Path, partition: int, host: str) -> str:
    """Return the name of the live file that a partition writes, or would write, for a host; registers nothing."""
    stem = rotation.stem_of(host)
    while owner_of(output, rotation.live_name(stem)) not in {None, partition}:
        stem = f"{stem}..p{partition}"
    return rotation.live_name(stem)


def owner_of(output: Path, live: str) -> int | None:
    """Return the partition that writes a live file, None when the register does not know; raises OSError."""
    try:
        return int((output / _FOLDER / live.removesuffix(".log")).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
