"""What the world of a run is drawn up as, and what this machine lets it have."""

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.disks import have_blocks
from tests.chaos.networks import can_shape
from tests.chaos.shim import have_compiler
from tests.support.journals import have_journal

_WEIRD_NAMES = (
    *("web01", "db.example.net", "Ünï-çode", "web02", "kafka-3.dc1.example.net", "mail", "x"),
)
_FEATURES: dict[str, tuple[Callable[[], bool], str]] = {
    "blocks": (have_blocks, "no ext4 on loop devices: no disk turns read-only or loses its power"),
    "shaping": (can_shape, "no tc with clsact and bpf: no line is silent or lossy"),
    "shim": (have_compiler, "no C compiler: no call of our programs is refused, no clock stepped"),
    "journal": (have_journal, "no journalctl or systemd-journal-remote: hosts have no journal"),
    "strace": (lambda: bool(shutil.which("strace")), "no strace: nats-server is refused nothing"),
}


@functools.cache
def machine_features() -> frozenset[str]:
    """Return the features of this machine that some faults need; in own namespaces only."""
    return frozenset(name for name, (is_there, _) in _FEATURES.items() if is_there())


def missing_here() -> list[str]:
    return [why for name, (_, why) in _FEATURES.items() if name not in machine_features()]


@dataclass(frozen=True, slots=True)
class Shape:
    """The world of one run.

    `topology`: "single" or "cluster" (three brokers). `receivers`: "alone", "standby" (two compete
    for all partitions) or "spark" (a standalone cluster). `secured`: each program has its
    credential. `rate`: mean lines per second and host. `slots`: tasks of a receiver without a
    cluster, which share the partitions. `table`: a table is written as well.
    """

    seed: int = 1
    topology: str = "single"
    receivers: str = "alone"
    hosts: int = 5
    partitions: int = 3
    slots: int = 2
    rate: int = 200
    secured: bool = False
    table: bool = False

    @property
    def features(self) -> frozenset[str]:
        """What a fault may need of it: topology, receivers, "secured", "table"."""
        own = {"secured": self.secured, "table": self.table}
        has = (name for name, is_there in own.items() if is_there)
        return frozenset({self.topology, self.receivers, *has})

    def __str__(self) -> str:
        more = ", secured" * self.secured + ", a table" * self.table
        shared = f"{self.partitions} partitions in {self.slots} tasks"
        return f"{self.topology}, receivers {self.receivers}{more}, {self.hosts} hosts, {shared}"


def host_name(number: int) -> str:
    return f"{_WEIRD_NAMES[number % len(_WEIRD_NAMES)]}{number // len(_WEIRD_NAMES) or ''}"
