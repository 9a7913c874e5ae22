"""What a backup says of itself in its `backup.json`: its archives, what is in them, and their digests.

A directory without one is no backup, whatever else is in it.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

__all__ = ["NAME", "Archive", "Backup", "UnreadableBackup"]

NAME = "backup.json"


class UnreadableBackup(ValueError):
    """A manifest that is damaged, or of a later version of this program."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Archive(_Value):
    """One stream: its file, the file's size in bytes and SHA-256, and what nats-server said of the stream.

    `created` is the stream's time of creation (RFC 3339), `config` and `state` are as the JetStream API has them, `state`
    as of the moment that the archive stands for. Consumers are in the archive.
    """

    stream: str
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+\.nats$")]
    size: int
    sha256: str
    created: str
    config: dict[str, Any]
    state: dict[str, Any]

    @model_validator(mode="after")
    def _is_of_one_stream(self) -> Self:
        if self.config.get("name") != self.stream:
            raise ValueError(f"{self.stream} is described as something else")
        return self

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


class Backup(_Value):
    """A whole backup; times in RFC 3339, UTC: what was acknowledged before `began` is in it, after `ended` is not."""

    version: Literal[1] = 1
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
        return (json.dumps(self.model_dump(), indent=2) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> "Backup":
        """Read the form on disk; raises `UnreadableBackup`."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "it"
            raise UnreadableBackup(
                f"damaged, or of another version: {place}: {first['msg']}"
            ) from error
