"""Who has a credential, since when, and who of them is there just now: as JSON and as a table."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from broker.app.columns import columns
from broker.granting.book import Book, Entry, account_name
from broker.granting.booktext import described

__all__ = ["connected", "rows", "table"]

_PAGE = 1024
_TIMEOUT = 5.0  # seconds
_HEAD = ("KIND", "NAME", "PROOF", "PARTITIONS", "SINCE", "ROTATED", "OLD UNTIL", "CONNECTED")


def connected(monitoring: str | None) -> Counter[str] | None:
    """Return how many connections each user has, as the monitoring at an address tells; None where nothing tells."""
    if not monitoring:
        return None
    found: Counter[str] = Counter()
    offset = 0
    while True:
        url = f"{monitoring}/connz?auth=1&limit={_PAGE}&offset={offset}"
        try:
            with urllib.request.urlopen(
                url, timeout=_TIMEOUT
            ) as answer:  # an http address of our own broker
                connections = json.loads(answer.read()).get("connections") or []
        except (OSError, ValueError):
            return None
        found.update(str(one.get("authorized_user", "")) for one in connections)
        offset += len(connections)
        if len(connections) < _PAGE:
            return found


def rows(book: Book, now: datetime, there: Counter[str] | None) -> list[dict[str, Any]]:
    """Return the credentials for programs, without hashes; `there` is what `connected` found."""
    return [_row(entry.at(now), there) for entry in book.entries]


def table(found: Iterable[dict[str, Any]]) -> str:
    """Return the same for people."""
    return "\n".join(columns([_HEAD, *map(_cells, found)], left=range(len(_HEAD))))


def _row(entry: Entry, there: Counter[str] | None) -> dict[str, Any]:
    known = {key: value for key, value in described(entry).items() if key != "password"}
    former = known.pop("former", [])
    return {
        "proof": next(key for key in ("nkey", "user", "certificate") if key in known).replace(
            "user", "password"
        ),
        **known,
        "rotated": known.get("rotated"),
        "old_until": max((one["until"] for one in former), default=None),
        "connections": None
        if there is None
        else sum(there[account_name(proof)] for proof in entry.proofs()),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    shares = ",".join(map(str, row.get("partitions", ())))
    return (
        row["kind"],
        row["name"],
        row["proof"],
        (shares or "all") if row["kind"] == "receiver" else "-",
        *(_short(row[key]) for key in ("since", "rotated", "old_until")),
        "-" if row["connections"] is None else str(row["connections"]),
    )


def _short(moment: str | None) -> str:
    return (
        "-"
        if moment is None
        else f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M}Z"
    )
