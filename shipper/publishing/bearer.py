"""For which host a credential is, where the broker denies what another host would need. Decides; asks nobody."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from broker.client.connection import Denied
from broker.wire.subjects import inbox_of

__all__ = ["Bearer"]


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who ships as `host`; `named` is the host that the file of its credential names, empty where it names none."""

    host: str
    named: str = ""

    def mistaken(self, denied: Denied, permissions: Mapping[str, Any] | None) -> str:
        """Say that the credential is another host's, if that is why something was denied; else return nothing.

        `permissions` are what the server says of this user, None where it said nothing.
        """
        if not self._is_own(denied.subject):
            return ""
        hosts = set(_hosts(permissions))
        owner = self.named if not hosts else min(hosts)
        if self.host in hosts or owner in {"", self.host}:
            return ""
        return (
            f"the credential is for host {owner}, but --host is {self.host}: "
            f"use the credential of {self.host}, or --host {owner}"
        )

    def _is_own(self, subject: str) -> bool:
        inboxes = (f"{inbox_of(self.host)}.", f"_INBOX_{self.host}.")
        return subject.startswith(inboxes) or subject.endswith(f".{self.host}")


def _hosts(permissions: Mapping[str, Any] | None) -> Iterator[str]:
    """Return the hosts that lines may be published for, as `logs.p0.web01` and `logs.*.web01` allow it."""
    for pattern in ((permissions or {}).get("publish") or {}).get("allow") or ():
        first, *partition_and_host = pattern.split(".")
        host = partition_and_host[1:]
        if first == "logs" and host and not {"*", ">"}.intersection(host):
            yield ".".join(host)
