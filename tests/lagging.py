"""Connections to a replica that lags, and to a bucket that others write at the same time."""

from typing import Any

from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection, Message

_DIRECT = "$JS.API.DIRECT.GET."


class Lagging(Connection):
    """While it `lags`, so many direct gets repeat the answers given at `remember`."""

    lags: int = 0
    _then: dict[str, Message]

    async def remember(self, subject: str) -> None:
        """Keep what the replica has now of a subject of a stream, `LOGS.logs.p0.web01`."""
        self._then = {_DIRECT + subject: await super().request(_DIRECT + subject)}

    async def request(self, subject: str, *rest: Any, **more: Any) -> Message:
        if self.lags and subject in self._then:
            self.lags -= 1
            return self._then[subject]
        return await super().request(subject, *rest, **more)


class Crowded(Connection):
    """A connection whose next writes are refused because another one is under way."""

    left: int = 0

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if self.left and subject.startswith("$KV."):
            self.left -= 1
            raise Rejected(400, 10164, "wrong last sequence")
        return await super().ask(subject, *rest, **more)
