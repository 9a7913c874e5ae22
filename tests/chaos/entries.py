"""Makes a line of the record: what was ordered, what came of it, and what exactly was run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bench.provenance import Provenance
from tests.chaos.order import Order
from tests.chaos.record import Entry

__all__ = ["entry_of"]


def entry_of(
    suite: str, order: Order, result: Mapping[str, Any], began: datetime, what: Provenance
) -> Entry:
    """Return the entry of a run that began at a time in UTC; `result` is `Result.as_json`."""
    return Entry(
        suite=suite,
        date=began.isoformat(timespec="seconds").replace("+00:00", "Z"),
        seed=order.shape.seed,
        shape=order.shape.as_json(),
        seconds=result["seconds"],
        strokes=result["strokes"],
        faults=result["faults"],
        not_struck=result["not_struck"],
        waits=tuple(result["waits"]),
        longest=result["longest"],
        lines=result["lines"],
        destroyed=result["destroyed"],
        reported=result["reported"],
        findings=tuple(result["findings"]),
        commit=what.commit,
        code=what.code,
        dirty=what.dirty,
        versions=what.versions,
        machine=what.machine,
    )
