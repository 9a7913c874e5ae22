"""What a run is made of, as a value: everything but the schedule. Written into the run log, so that a run can be had again."""

from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The world of one run.

    `topology` is "single" or "cluster" (three brokers); `receivers` is "alone", "standby" (two of them compete for all
    partitions), or "spark" (a standalone cluster of a master and two workers). `secured` gives each program credentials
    of its own. `rate` is in lines per second and host, on average. `plain` has hosts
    write but lines of text, and rotate by renaming only, which every suite can follow.
    """

    seed: int = 1
    topology: str = "single"
    receivers: str = "alone"
    hosts: int = 5
    partitions: int = 3
    rate: int = 200
    secured: bool = False
    plain: bool = False

    @classmethod
    def drawn(cls, seed: int, topology: str, hosts: int, partitions: int) -> "Shape":
        """Return the shape that a seed stands for: receivers and credentials take turns."""
        return cls(
            seed=seed,
            topology=topology,
            receivers=("alone", "standby", "spark")[seed % 3],
            hosts=hosts,
            partitions=partitions,
            secured=seed % 4 == 3,
        )

    @property
    def features(self) -> frozenset[str]:
        """What a fault may need of it: "cluster" or "single", "alone", "standby" or "spark", "secured"."""
        found = {self.topology, self.receivers}
        return frozenset(found | {"secured"} if self.secured else found)

    def with_(self, **changes: Any) -> "Shape":
        """Return the same but for some fields."""
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)
