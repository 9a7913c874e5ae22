"""All kinds of faults: by family, and by name."""

from tests.chaos.faults import (
    clocks,
    clusters,
    credentials,
    disks,
    innocents,
    lines,
    processes,
    refusals,
    rivals,
    state,
    stores,
    stream,
)
from tests.chaos.schedule import FaultKind

__all__ = ["CATALOGUE", "FAMILIES"]

_MODULES = (
    *(processes, disks, refusals, clocks, lines, clusters),
    *(rivals, credentials, innocents, state, stores, stream),
)
FAMILIES: dict[str, list[FaultKind]] = {
    module.__name__.rpartition(".")[2]: module.FAMILY.kinds for module in _MODULES
}
CATALOGUE: dict[str, FaultKind] = {kind.name: kind for kinds in FAMILIES.values() for kind in kinds}
