"""What each logbroker answers in the account of the stream, and on which subjects: its report, and its credentials."""

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel

SUBJECT = "logship.broker"
NAMES_QUESTION = b"names"
"""What is asked at `SUBJECT` for the holders of credentials by their public keys, as JSON."""
CREDENTIALS_SUBJECT = "logship.credentials"


class Certificate(BaseModel):
    """A certificate of the server, by its path."""

    path: str
    not_after: AwareDatetime


class SpaceReport(BaseModel):
    """What retention did for a stream, and whether it could not: `state`, `since` when, and who needs the oldest messages."""

    state: str
    since: str | None = None
    needed_by: tuple[str, ...] = ()
    purged_messages: int = 0


class NodeReport(BaseModel, extra="allow"):
    """A server: sizes of its disk in bytes, `frozen` why it stores nothing, how many credentials.

    Without credentials (None) it is open. It is to connect to `site_remotes` other sites, and is
    connected to `site_links` of them, None where that is not known.
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


class CredentialsRequest(BaseModel, extra="forbid"):
    """What an admin asks: the credentials, and that those be revoked first, each by kind and name."""

    revoke: tuple[tuple[Literal["host", "receiver", "admin", "monitor", "site"], str], ...] = ()


class CredentialsReport(BaseModel):
    """The credentials at the server `name`, as `credentials list --json` shows them; `error` says why something was not done."""

    name: str
    secured: bool = False
    credentials: list[dict[str, Any]] = []
    error: str = ""
