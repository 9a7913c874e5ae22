"""A connection that breaks once, before or after the answer to a write has come in."""

from typing import Any

from broker.client.answer import ConnectionLost
from broker.client.connection import Connection


class Flaky(Connection):
    """A connection whose next write to KV ends in `error`: "stored" or "not stored"."""

    breaks: str | None = None
    error: Exception = ConnectionLost("cut")

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if not subject.startswith("$KV.") or self.breaks is None:
            return await super().ask(subject, *rest, **more)
        when, self.breaks = self.breaks, None
        if when == "stored":
            await super().ask(subject, *rest, **more)
        raise self.error
