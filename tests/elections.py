"""A connection to a broker whose leaders are being elected when they are first asked."""

from collections.abc import Mapping
from typing import Any

from broker.client.answer import Rejected
from broker.client.connection import Connection

NO_LEADER = Rejected(503, 10008, "JetStream system temporarily unavailable")


class Electing(Connection):
    """Refuses each kind of call, such as `STREAM.INFO`, the first time; `refused` names those that were."""

    refused: frozenset[str] = frozenset()

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float | None = None
    ) -> dict[str, Any]:
        kind = ".".join(name.split(".")[:2])
        if kind not in self.refused:
            self.refused |= {kind}
            raise NO_LEADER
        return await super().api(name, body, patience)
