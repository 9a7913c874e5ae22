"""What this machine has that some kinds of faults need: each is a feature, and is said to be missing where it is."""

import functools
import shutil
from collections.abc import Callable

from tests.chaos.carrier import can_carry
from tests.chaos.disks import have_blocks
from tests.chaos.networks import can_shape
from tests.chaos.shim import have_compiler

__all__ = ["machine_features", "missing_here"]

_FEATURES: dict[str, tuple[Callable[[], bool], str]] = {
    "blocks": (have_blocks, "no ext4 on loop devices: no disk turns read-only or loses its power"),
    "shaping": (can_shape, "no tc with tbf, clsact and bpf: no line is silent, lossy or slow"),
    "tun": (can_carry, "no TUN devices: no line is long"),
    "shim": (have_compiler, "no C compiler: no call of our programs is refused, no clock stepped"),
    "strace": (
        lambda: shutil.which("strace") is not None,
        "no strace: nats-server is refused nothing",
    ),
}


@functools.cache
def machine_features() -> frozenset[str]:
    """Return the features of this machine; only within namespaces of the caller's own."""
    return frozenset(name for name, (is_there, _) in _FEATURES.items() if is_there())


def missing_here() -> list[str]:
    """Return a sentence for each feature that is not there."""
    return [why for name, (_, why) in _FEATURES.items() if name not in machine_features()]
