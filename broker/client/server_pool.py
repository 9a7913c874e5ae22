"""The servers of one broker: tried in turn, each time with the credential files as they are then."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import nats.errors

from broker.app.exits import OperatorError
from broker.client.access import Access
from broker.client.client import BrokerClient
from broker.client.credentials import read_credentials
from broker.client.failure import Failure, failure_of, summary
from broker.client.inboxes import Inboxes
from broker.client.servers import public
from broker.client.trust import attempts, is_cut_off

__all__ = ["BrokerAway", "ServerPool"]


class BrokerAway(OperatorError):
    """No broker lets us in at the addresses given."""


class ServerPool:
    """The servers of one broker, and who asks to be let in there."""

    def __init__(self, servers: Sequence[str], name: str, inboxes: Inboxes, access: Access) -> None:
        """Remember them; no file is read before the first `enter`."""
        self._servers = list(servers)
        self._name = name
        self._inboxes = inboxes
        self._access = access
        self.api_prefix = access.api_prefix
        """What the subjects of the JetStream API begin with, as the settings or the credential file say; else empty."""
        self._last = ""
        self._present: BrokerClient | None = None
        self._most_known = 0

    def __str__(self) -> str:
        """Name the addresses, without the passwords that may stand in them."""
        return ", ".join(map(public, self._servers))

    @property
    def is_one_of_several(self) -> bool:
        """Whether there is another server to go to."""
        return len(set(self._servers)) > 1

    async def enter(self, hear: Callable[[Exception], Awaitable[None]]) -> BrokerClient:
        """Return a client of the first server that lets us in, the one that did before being the last to be asked.

        One that is cut off from its cluster, as far as can be told, is taken only where there is no other. `hear` is told
        what goes wrong later. Raises `BrokerAway` with what kept us out of each server, or ConfigurationError for files
        that cannot be read.
        """
        if self._present is not None:
            self._most_known = max(self._most_known, self._present.most_known)
        credentials = await asyncio.to_thread(read_credentials, self._access)
        self._inboxes.know(credentials)
        self.api_prefix = credentials.api_prefix
        failures: dict[str, Failure] = {}
        slow: list[str] = []
        alone: BrokerClient | None = None
        order = random.sample(self._servers, len(self._servers))
        for server, patience in attempts(order, self._last, slow):
            client = BrokerClient(
                server, self._access, credentials, patience, among=self.is_one_of_several
            )
            try:
                await client.open(hear, name=self._name, inbox_prefix=self._inboxes.prefix)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                failures[server] = failure_of(error, server, self._access)
                if isinstance(error, TimeoutError | nats.errors.TimeoutError):
                    slow.append(server)
                continue
            await _end(alone)
            self._present, self._last = client, server
            if not self._is_alone(client):
                return client
            alone = client
        if alone is not None:
            return alone
        raise BrokerAway(summary([failures[server] for server in dict.fromkeys(self._servers)]))

    def _is_alone(self, client: BrokerClient) -> bool:
        """Whether its server has lost sight of most of those that it once knew, or that we were told of."""
        told = (
            len(set(self._servers)) if client.known else 0
        )  # one that is in no cluster knows none
        return is_cut_off(client.known, max(self._most_known, told))


async def _end(client: BrokerClient | None) -> None:
    if client is not None:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            await client.end()
