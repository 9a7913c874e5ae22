"""The report of a logbroker on itself, and the subject on which each of them answers with it, in the account of the stream."""

from pydantic import AwareDatetime, BaseModel

SUBJECT = "logship.broker"


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
    """A server: sizes of its disk in bytes, `frozen` why it stores nothing, how many credentials there are (None: open)."""

    name: str
    version: str
    nats_server_pid: int | None = None
    credentials: int | None
    free: int
    reserve: int
    frozen: str | None = None
    encrypted: bool = False
    mirror: str | None = None
    certificates: tuple[Certificate, ...] = ()
    retention: dict[str, SpaceReport] = {}
