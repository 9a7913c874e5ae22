"""Which partition writes a host's file: the first that had lines of it, for ever.

A host belongs to one partition, so that this never matters, unless a plain NATS client publishes a host's lines under
another partition. Two writers of one file would undo each other's lines; the second partition gets a file of its own,
`<host>.p<N>.log`.
"""

import os
from pathlib import Path

from receiver import rotation
from receiver.logbook import sync_folder

__all__ = ["Owners"]

_known: dict[tuple[Path, int, str], str] = {}


class Owners:
    """The register of hosts in the state folder, as one partition asks it."""

    def __init__(self, state: Path, partition: int) -> None:
        """Use the folder `hosts` below the state folder; it must exist."""
        self._folder = state / "hosts"
        self._partition = partition

    def live_name(self, host: str) -> str:
        """Return the name of the live file that this partition writes for a host; raises OSError."""
        key = (self._folder, self._partition, host)
        if key not in _known:
            _known[key] = self._claim(rotation.stem_of(host))
        return _known[key]

    def _claim(self, stem: str) -> str:
        mine = str(self._partition).encode()
        path = self._folder / stem
        fresh = self._folder / f".{stem}.p{self._partition}"
        if not path.exists():
            fresh.write_bytes(mine)
            try:
                os.link(fresh, path)  # appears whole or not at all, and never replaces another's
            except FileExistsError:
                pass  # that's fine: another partition was quicker, and is read below
            finally:
                fresh.unlink()
            sync_folder(self._folder)
        owner = path.read_bytes()
        return rotation.live_name(stem if owner == mine else f"{stem}.p{self._partition}")
