"""A connection to a replica that lags: it answers direct gets once more as before."""

from typing import Any

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
