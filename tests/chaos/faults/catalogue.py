"""All kinds of faults, by name."""

from tests.chaos.faults import disks, processes
from tests.chaos.faults.fault import FaultKind

__all__ = ["CATALOGUE"]

CATALOGUE: dict[str, FaultKind] = {
    kind.kind.name: kind for kind in (*processes.KINDS, *disks.KINDS)
}
