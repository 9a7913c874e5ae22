"""All kinds of faults: by family, and by name."""

from tests.chaos.faults import (
    clocks,
    clusters,
    credentials,
    disks,
    hands,
    innocents,
    lines,
    processes,
    refusals,
    rivals,
    state,
    stores,
    stream,
)
from tests.chaos.faults.fault import FaultKind

__all__ = ["CATALOGUE", "FAMILIES"]

FAMILIES: dict[str, tuple[FaultKind, ...]] = {
    "processes": processes.KINDS,
    "disks": disks.KINDS,
    "refusals": refusals.KINDS,
    "clocks": clocks.KINDS,
    "lines": lines.KINDS,
    "clusters": clusters.KINDS,
    "rivals": rivals.KINDS,
    "credentials": credentials.KINDS,
    "innocents": innocents.KINDS,
    "state": state.KINDS,
    "stores": stores.KINDS,
    "stream": stream.KINDS,
    "hands": hands.KINDS,
}
CATALOGUE: dict[str, FaultKind] = {
    kind.kind.name: kind for kinds in FAMILIES.values() for kind in kinds
}
