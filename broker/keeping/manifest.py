"""What a backup says of itself in its `backup.json`: which archives belong to it, what is in them, and their digests.

A value and its form on disk. A folder without one is no backup, whatever else lies in it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["NAME", "Archive", "Backup", "UnreadableBackup"]

NAME = "backup.json"
_VERSION = 1


class UnreadableBackup(ValueError):
    """A manifest that is damaged, or of a later version of this program."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One stream: its file in the backup's folder, `size` in bytes and SHA-256 of that, and what nats-server said of it.

    `created` is the stream's time of creation (RFC 3339), `config` and `state` are as the JetStream API has them, `state`
    as of the moment that the archive stands for. Consumers are in the archive.
    """

    stream: str
    file: str
    size: int
    sha256: str
    created: str
    config: Mapping[str, Any]
    state: Mapping[str, Any]

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return int(self.state.get("messages", 0))

    @property
    def bytes(self) -> int:
        """What they take in a store, in bytes."""
        return int(self.state.get("bytes", 0))

    @property
    def until(self) -> int:
        """The first sequence that it does not hold any more."""
        return int(self.state.get("last_seq", 0)) + 1


@dataclass(frozen=True, slots=True)
class Backup:
    """A whole backup; times in RFC 3339, UTC: what was acknowledged before `began` is in it, after `ended` is not."""

    began: str
    ended: str
    server: str
    server_version: str
    archives: tuple[Archive, ...]

    @property
    def size(self) -> int:
        """What the archives take on disk, in bytes."""
        return sum(archive.size for archive in self.archives)

    def encode(self) -> bytes:
        """Return the form on disk: JSON with a version."""
        return (json.dumps({"version": _VERSION, **asdict(self)}, indent=2) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> "Backup":
        """Read the form on disk; raises `UnreadableBackup`."""
        try:
            document = json.loads(data)
            version = document.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableBackup(f"damaged ({type(error).__name__})") from error
        if version != _VERSION:
            raise UnreadableBackup(f"of version {version!r}; this program reads {_VERSION}")
        try:
            archives = tuple(_archive(entry) for entry in document.pop("archives"))
            return cls(**document, archives=archives)
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableBackup(f"damaged ({error})") from error


def _archive(entry: Mapping[str, Any]) -> Archive:
    archive = Archive(**entry)
    name = archive.file
    if "/" in name or name in {"", ".", ".."}:
        raise ValueError(f"{name!r} is no name of a file")
    if not isinstance(archive.config, dict) or not isinstance(archive.state, dict):
        raise TypeError(f"{archive.stream} has no configuration or no state")
    if archive.config.get("name") != archive.stream or type(archive.size) is not int:
        raise ValueError(f"{archive.stream} is described as something else")
    return archive
