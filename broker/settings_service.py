"""The settings of how the broker runs: whom it is open to, and how its store is encrypted."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from broker.app.configuration import ProgramSettings

__all__ = ["ServiceSettings"]


class ServiceSettings(ProgramSettings):
    """What `logbroker run` alone is told."""

    section: ClassVar[str] = "Security"

    allow_anonymous: bool = Field(
        False,
        description="Listen beyond this machine without credentials: whoever reaches it may read and write all.",
    )
    encryption_key_file: Path | None = Field(
        None,
        description="File with the key that the store is encrypted with, at least 16 bytes; it stays needed for ever.",
        json_schema_extra={"metavar": "FILE"},
    )
    encryption_cipher: Literal["chacha20", "aes"] = Field(
        "chacha20",
        description="Cipher of a store that is new: chacha20, or aes, faster with many CPUs' instructions for it.",
        json_schema_extra={"file_only": True, "metavar": "chacha20|aes"},
    )
