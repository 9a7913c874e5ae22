"""What this machine has that some kinds of faults need: each is a feature, and is said to be missing where it is."""

import functools

from tests.chaos.disks import have_blocks

__all__ = ["machine_features", "missing_here"]

_FEATURES = {
    "blocks": (have_blocks, "no ext4 on loop devices: no disk turns read-only or loses its power"),
}


@functools.cache
def machine_features() -> frozenset[str]:
    """Return the features of this machine; only within namespaces of the caller's own."""
    return frozenset(name for name, (is_there, _) in _FEATURES.items() if is_there())


def missing_here() -> list[str]:
    """Return a sentence for each feature that is not there."""
    return [why for name, (_, why) in _FEATURES.items() if name not in machine_features()]
