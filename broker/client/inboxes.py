"""Which subjects answers are heard on: one prefix at a time, of those that our rights may allow. Decides; subscribes nothing."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from broker.client.access import Access
from broker.client.credentials import Credentials
from broker.wire.subjects import inbox_of

__all__ = ["ANYBODY", "Inboxes"]

ANYBODY = "_INBOX"
"""The prefix of every client that has none of its own."""


class Inboxes:
    """The prefixes of a connection's inboxes, the one in use first."""

    def __init__(self, access: Access, servers: Sequence[str], prefixes: Sequence[str]) -> None:
        """Begin with the first; one that a person gave is the only one. A user's name may stand in the addresses."""
        self._prefixes = [access.inbox_prefix] if access.inbox_prefix else list(prefixes)
        named = (urlsplit(server).username for server in servers)
        self._user = access.user or next(filter(None, named), "")
        self._turns = 0

    @property
    def prefix(self) -> str:
        """The one in use."""
        return self._prefixes[0]

    @property
    def own(self) -> str:
        """What tells the one in use from that of everybody; empty where it is that."""
        return self.prefix.partition(f"{ANYBODY}_")[2]

    def know(self, credentials: Credentials) -> None:
        """Go by what the settings or the credential file say, and nothing else; else by a user's name before everybody's."""
        if credentials.inbox_prefix:
            self._prefixes, self._turns = [credentials.inbox_prefix], 0
        elif self._user and self._prefixes == [ANYBODY]:
            self._prefixes.insert(0, inbox_of(self._user))

    def turn(self) -> bool:
        """Go on to the next prefix, after the one in use was denied; False when all of them were, and begin again."""
        self._prefixes.append(self._prefixes.pop(0))
        self._turns = (self._turns + 1) % len(self._prefixes)
        return self._turns != 0
