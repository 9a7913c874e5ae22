"""What each logbroker answers within the streams' account: its report, and its credentials.

Every logbroker of a cluster subscribes to both subjects, and each answers for its own server.
"""

from enum import StrEnum
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel

REPORT_SUBJECT = "logship.broker"
"""Answers with a `NodeReport`."""
NAMES_REQUEST = b"names"
"""Payload at `REPORT_SUBJECT` that asks for the holders of credentials by public key, as JSON."""
CREDENTIALS_SUBJECT = "logship.credentials"
"""Answers a `CredentialsRequest` with a compressed `CredentialsReport`."""


class Certificate(BaseModel):
    """A certificate of the server, by its path."""

    path: str
    not_after: AwareDatetime


class SpaceState(StrEnum):
    """Whether a stream has space: all is well, it is being purged, or it is full."""

    OK = "ok"
    PURGING = "purging"
    HOSTS_WAIT = "hosts wait"
    LINES_DROPPED = "oldest lines are dropped"

    @property
    def is_full(self) -> bool:
        """Whether nothing can be purged, since a receiver needs the oldest message."""
        return self in {SpaceState.HOSTS_WAIT, SpaceState.LINES_DROPPED}


class SpaceReport(BaseModel):
    """The space of a stream: its `state`, `since` when, and who needs the oldest messages."""

    state: SpaceState
    since: str | None = None
    needed_by: tuple[str, ...] = ()
    purged_messages: int = 0


class NodeReport(BaseModel, extra="allow"):
    """A server. Sizes of its disk are in bytes.

    `credentials` is None if the server lets everybody in. `frozen` is the reason if it stores
    nothing. It should be connected to `site_remotes` other sites, and is to `site_links` of them;
    None if that is unknown. `rounds_per_second` is how many rounds all hosts sent in the last ten
    seconds; None before that, and at a mirror.
    """

    name: str
    version: str
    nats_server_pid: int | None = None
    credentials: int | None
    free: int
    reserve: int
    frozen: str | None = None
    encrypted: bool = False
    mirror: str | None = None
    site_remotes: int = 0
    site_links: int | None = None
    certificates: tuple[Certificate, ...] = ()
    retention: dict[str, SpaceReport] = {}
    rounds_per_second: float | None = None


class CredentialsRequest(BaseModel, extra="forbid"):
    """A request of an admin for the credentials, after these (kind, name) are revoked."""

    revoke: tuple[tuple[Literal["host", "receiver", "admin", "monitor", "site"], str], ...] = ()


class CredentialsReport(BaseModel):
    """The credentials at the server `name`, as `credentials list --json` shows them.

    `error` says why a revocation failed; empty if it did not.
    """

    name: str
    secured: bool = False
    credentials: list[dict[str, Any]] = []
    error: str = ""
