"""The state of a stream as its leader reports it: when it was created, which sequences it holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.answer import Rejected, require_certain
from nats_logship.client.connection import Connection
from nats_logship.wire.restored import Ancestor, ancestors, is_being_restored
from nats_logship.wire.streams import STREAM

_PAGE_PATIENCE = 30.0  # seconds for a page of subjects


@dataclass(frozen=True, slots=True)
class StreamState:
    """When a stream was created, and the sequences it holds, `[first, until)`.

    It has `messages` of `size` bytes; the newest was stored at `last`. `ancestors` are the streams
    that it was restored from, oldest first.
    """

    created: str
    first: int
    until: int
    ancestors: tuple[Ancestor, ...] = ()
    name: str = STREAM
    messages: int = 0
    size: int = 0
    last: datetime = datetime(1, 1, 1, tzinfo=UTC)

    @property
    def key(self) -> str:
        """Its name with its creation, as tables have it: `LOGS/2026-11-20T10:00:00Z`."""
        return f"{self.name}/{self.created}"

    def in_common_with(self, created: str) -> int | None:
        """Return up to which sequence this stream equals one that it was restored from.

        None if it was not restored from the stream of that creation time.
        """
        return next((one.until for one in self.ancestors if one.created == created), None)


async def get_stream_state(connection: Connection, name: str) -> StreamState:
    """Return the state of a stream; raises `Rejected` if there is none, as `parse_stream_state`."""
    return parse_stream_state(await connection.api(f"STREAM.INFO.{name}"))


async def require_stream(connection: Connection, name: str) -> StreamState:
    """Return the state of a stream for a person who named it.

    Raises `ConfigurationError` if there is no such stream, `BrokerAway` at once if there is no
    broker, `OperatorError`, `ConnectionLost`.
    """
    await connection.connect()
    try:
        return await get_stream_state(connection, name)
    except Rejected as error:
        if error.is_absent:
            raise ConfigurationError(
                f"there is no stream {name} at {connection.servers}; check the option stream, "
                "or run `logbroker apply`"
            ) from None
        raise OperatorError(f"stream {name} at {connection.servers}: {error}") from None


def parse_stream_state(info: Mapping[str, Any]) -> StreamState:
    """Read an answer to `STREAM.INFO`; raises `Rejected` while the stream is being restored.

    Raises `ConnectionLost` for an answer that may be outdated, since a shorter stream would look
    as if it had been rewound.
    """
    require_certain(info)
    state, config, until = info["state"], info["config"], info["state"]["last_seq"] + 1
    name = config["name"]
    if is_being_restored(config):
        raise Rejected(503, 0, f"stream {name} is being restored from a backup")
    return StreamState(
        created=info["created"],
        first=state["first_seq"] if state["messages"] else until,
        until=until,
        ancestors=ancestors(config),
        name=name,
        messages=state["messages"],
        size=state["bytes"],
        last=datetime.fromisoformat(state["last_ts"]),
    )


async def count_by_subject(
    connection: Connection, streams: Sequence[str], wanted: str = ">"
) -> dict[str, int]:
    """Return the number of messages on each subject that matches `wanted`.

    Raises `Rejected`, `ConnectionLost`.
    """
    found: dict[str, int] = {}
    for stream in streams:
        own: dict[str, int] = {}
        total = 1
        while len(own) < total:
            body = {"subjects_filter": wanted, "offset": len(own)}
            info = await connection.api(f"STREAM.INFO.{stream}", body, patience=_PAGE_PATIENCE)
            page, total = info["state"].get("subjects") or {}, info.get("total", 0)
            # new and removed subjects shift the pages, so a page may hold nothing new
            if page.keys() <= own.keys():
                break
            own |= page
        found |= own
    return found
