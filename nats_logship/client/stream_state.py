"""A stream as the broker describes it: when it was made, and which sequences it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nats_logship.client.answer import ConnectionLost, Rejected, is_certain
from nats_logship.client.connection import Connection
from nats_logship.wire.restored import Ancestor, ancestors, is_being_restored
from nats_logship.wire.streams import STREAM


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stream as the broker describes it: when it was made, and the sequences it holds, `[first, until)`.

    `ancestors` are the streams that it was restored from, oldest first. It has `messages` of `size` bytes, the newest of `last`.
    """

    created: str
    first: int
    until: int
    ancestors: tuple[Ancestor, ...] = ()
    name: str = STREAM
    messages: int = 0
    size: int = 0
    last: datetime = datetime(1, 1, 1, tzinfo=UTC)

    def in_common_with(self, created: str) -> int | None:
        """Return the end of what it has in common with a stream that it was restored from; None for any other."""
        return next((one.until for one in self.ancestors if one.created == created), None)


async def stream_state(connection: Connection, name: str) -> StreamState:
    """Ask what a stream holds; raises what `state_of` raises, `Rejected` when there is none."""
    return state_of(await connection.api(f"STREAM.INFO.{name}"))


def state_of(info: Mapping[str, Any]) -> StreamState:
    """Read what the broker says of a stream; raises `Rejected` while a backup is read in.

    Raises `ConnectionLost` when nobody can say so for sure: a stream that seems shorter than it is would look rewound.
    """
    name = info["config"]["name"]
    state, config, until = info["state"], info["config"], info["state"]["last_seq"] + 1
    if not is_certain(info):
        raise ConnectionLost(f"stream {name} has no leader that is sure of it")
    if is_being_restored(config):
        raise Rejected(503, 0, f"stream {name} is being restored from a backup")
    return StreamState(
        info["created"],
        state["first_seq"] if state["messages"] else until,
        until,
        ancestors(config),
        name,
        state["messages"],
        state["bytes"],
        datetime.fromisoformat(state["last_ts"]),
    )
