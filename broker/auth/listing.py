"""Who has a credential, since when, and how many connections use it: as plain values and as a table."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from broker.app.table import aligned
from broker.auth.store import Credential, CredentialStore

__all__ = ["connections_at", "rows", "table"]

_PAGE = 1024
_TIMEOUT = 5.0  # seconds
_HEAD = ("KIND", "NAME", "PARTITIONS", "SINCE", "ROTATED", "OLD UNTIL", "CONNECTED")


def connections_at(monitoring: str | None) -> Counter[str] | None:
    """Return how many connections use each key, as the monitoring at an address tells; None where nothing tells."""
    if not monitoring:
        return None
    found: Counter[str] = Counter()
    offset = 0
    while True:
        url = f"{monitoring}/connz?auth=1&limit={_PAGE}&offset={offset}"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:  # our own broker's
                page = json.loads(answer.read()).get("connections") or []
        except (OSError, ValueError):
            return None
        found.update(str(one.get("authorized_user", "")) for one in page)
        offset += len(page)
        if len(page) < _PAGE:
            return found


def rows(
    store: CredentialStore, now: datetime, connections: Counter[str] | None
) -> list[dict[str, Any]]:
    """Return the credentials as plain values; `connections` are those by key, where they are known."""
    return [_row(one, now, connections) for one in store.credentials]


def table(found: Iterable[dict[str, Any]]) -> str:
    """Return rows for people."""
    return aligned(_HEAD, list(map(_cells, found)), left=range(len(_HEAD)))


def _row(one: Credential, now: datetime, connections: Counter[str] | None) -> dict[str, Any]:
    keys = one.accepted_keys(now)
    told = one.as_json()
    former = [old["until"] for old in told.pop("former", []) if old["nkey"] in keys]
    return {
        **told,
        "rotated": told.get("rotated"),
        "old_until": max(former, default=None),
        "connections": None if connections is None else sum(connections[key] for key in keys),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    partitions = ",".join(map(str, row.get("partitions", ()))) or "all"
    return (
        row["kind"],
        row["name"],
        partitions if row["kind"] == "receiver" else "-",
        *(_short(row[key]) for key in ("since", "rotated", "old_until")),
        "-" if row["connections"] is None else str(row["connections"]),
    )


def _short(moment: str | None) -> str:
    if moment is None:
        return "-"
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M}Z"
