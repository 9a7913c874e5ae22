"""What a logbroker tells of itself and of its nats-server, to whoever asks on the subject. Values only."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["SUBJECT", "End", "Report"]

SUBJECT = "logship.broker"
"""In the account of the stream; in a cluster every logbroker answers."""


@dataclass(frozen=True, slots=True)
class End:
    """When a certificate of the broker ends: its subject, its file, and the time in RFC 3339."""

    name: str
    path: str
    not_after: str


@dataclass(frozen=True, slots=True)
class Report:
    """One broker and its server, whose `name` is first; sizes in bytes, times in RFC 3339.

    `provenance` says where the binary is from: pinned, own or unknown. `held` is what the store takes of its disk, of
    which `free` is left of `total`; `reserve` of it is to stay free. `frozen` says why the stream takes nothing more, None
    when it does. `credentials` is their number, None for an open broker. Keepers add parts of their own, such as `room`.
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
    total: int
    free: int
    reserve: int
    max_store: int
    held: int
    frozen: str | None
    encrypted: bool
    credentials: int | None
    certificates: tuple[End, ...]
    cluster: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the same as plain values; the keys are the field names, and stay."""
        return asdict(self)
