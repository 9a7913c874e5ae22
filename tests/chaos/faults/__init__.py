"""All faults, a module for each kind of place.

To import this is to have them in `tests.chaos.fault.FAULTS`.
"""

from tests.chaos.faults import (  # noqa: F401 - each adds its own
    calls,
    clusters,
    credentials,
    disks,
    innocents,
    lines,
    memory,
    processes,
    rivals,
)
