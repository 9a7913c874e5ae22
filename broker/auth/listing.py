"""Who has a credential, since when, and how many connections use it: as plain values and as a table."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from broker.auth.store import Credential, CredentialStore

__all__ = ["HEAD", "cells", "connections_at", "rows"]

HEAD = ("KIND", "NAME", "PARTITIONS", "SINCE", "ROTATED", "OLD UNTIL", "CONNECTED")
"""The columns of the table, of which `cells` returns the rows."""

_MOST = 1_000_000  # connections; nats-server gives 1,024 unless told otherwise
_TIMEOUT = 5.0  # seconds


def connections_at(monitoring: str | None) -> Counter[str] | None:
    """Return how many connections use each key, as the monitoring at an address tells; None where nothing tells."""
    if not monitoring:
        return None
    try:
        with urllib.request.urlopen(
            f"{monitoring}/connz?auth=1&limit={_MOST}", timeout=_TIMEOUT
        ) as answer:  # our own broker's
            found = json.loads(answer.read()).get("connections") or []
    except (OSError, ValueError):
        return None
    return Counter(str(one.get("authorized_user", "")) for one in found)


def rows(
    store: CredentialStore, now: datetime, connections: Counter[str] | None
) -> list[dict[str, Any]]:
    """Return the credentials as plain values; `connections` are those by key, where they are known."""
    return [_row(one, now, connections) for one in store.credentials]


def _row(one: Credential, now: datetime, connections: Counter[str] | None) -> dict[str, Any]:
    keys = one.accepted_keys(now)
    row = one.model_dump(mode="json", exclude={"former"})
    former = [old["until"] for old in one.model_dump(mode="json")["former"] if old["nkey"] in keys]
    count = None if connections is None else sum(connections[key] for key in keys)
    return {**row, "old_until": max(former, default=None), "connections": count}


def cells(found: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return rows for people."""
    return [
        (
            row["kind"],
            row["name"],
            _partitions(row),
            *(_short(row[key]) for key in ("since", "rotated", "old_until")),
            "-" if row["connections"] is None else str(row["connections"]),
        )
        for row in found
    ]


def _partitions(row: dict[str, Any]) -> str:
    return ",".join(map(str, row["partitions"])) or "all" if row["kind"] == "receiver" else "-"


def _short(moment: str | None) -> str:
    if moment is None:
        return "-"
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M}Z"
