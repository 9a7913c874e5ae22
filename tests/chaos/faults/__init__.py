"""All faults, a module for each kind: an import adds them to `tests.chaos.fault.FAULTS`."""

from tests.chaos.faults import (  # noqa: F401 - each adds its own
    calls,
    clusters,
    credentials,
    disks,
    innocents,
    journals,
    lines,
    memory,
    points,
    processes,
    rivals,
    tables,
)
