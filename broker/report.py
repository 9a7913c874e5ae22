"""What a logbroker tells of itself and of its nats-server, to whoever asks on the subject. Values only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["SUBJECT", "End", "Report"]

SUBJECT = "logship.broker"
"""In the account of the stream; in a cluster every logbroker answers."""


@dataclass(frozen=True, slots=True)
class End:
    """When a certificate of the broker ends: its file, and the time in RFC 3339."""

    path: str
    not_after: str


@dataclass(frozen=True, slots=True)
class Report:
    """One broker; sizes in bytes, times in RFC 3339.

    `provenance` says where the binary is from: pinned, own or unknown. `held` is what the store takes of its disk, of
    which `disk_free` is left; `reserve` of it is to stay free. `frozen` says why the stream takes nothing more, None when
    it does. `credentials` is their number, None for an open broker. `room` is what the keeper of the stream's room did.
    """

    name: str
    version: str
    commit: str
    binary: str
    sha256: str
    provenance: str
    logship: str
    pid: int
    nats_server_pid: int
    started: str
    restarts: int
    store_dir: str
    disk_total: int
    disk_free: int
    reserve: int
    max_store: int
    held: int
    frozen: str | None
    encrypted: bool
    credentials: int | None
    certificates: tuple[End, ...]
    cluster: str | None
    room: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values; the keys are the field names, and stay."""
        return asdict(self)
