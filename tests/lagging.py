"""Connections to a replica that lags, and to a bucket that others write at the same time."""

from collections.abc import Mapping
from typing import Any, ClassVar

from nats_logship.client.answer import Rejected
from nats_logship.client.client import BrokerClient
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


class OnReplicas(Connection):
    """Connects to a cluster, whose next `behind` consumers are on a replica without a message."""

    behind: int = 0
    _INFO: ClassVar[dict[str, Any]] = {
        "leader": "n1",
        "replicas": [
            {"name": name, "current": current, "lag": lag, "active": 100_000_000}
            for name, current, lag in (("n2", False, 5_000), ("n3", True, 0))
        ],
    }

    async def client(self) -> BrokerClient:
        found = await super().client()
        found.is_clustered = True
        return found

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float = 10.0
    ) -> dict[str, Any]:
        is_create = name.startswith("CONSUMER.CREATE.")
        is_behind = bool(is_create and self.behind)
        if is_behind and body:
            self.behind -= 1
            kept = {k: v for k, v in body["config"].items() if k != "opt_start_seq"}
            body = {**body, "config": {**kept, "deliver_policy": "new"}}
        answer = await super().api(name, body, patience)
        if name.startswith("STREAM.INFO."):
            config = {**answer["config"], "num_replicas": 3}
            return {**answer, "config": config, "cluster": self._INFO}
        server = "n2" if is_behind else "n3"
        return {**answer, "cluster": {"leader": server}} if is_create else answer


class Crowded(Connection):
    """A connection whose next writes are refused because another one is under way."""

    left: int = 0

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if self.left and subject.startswith("$KV."):
            self.left -= 1
            raise Rejected(400, 10164, "wrong last sequence")
        return await super().ask(subject, *rest, **more)
