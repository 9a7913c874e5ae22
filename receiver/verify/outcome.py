"""What the tasks of a verification are told, and what they answer. Values only."""

from dataclasses import dataclass
from pathlib import Path

from receiver.replay.reading import Reader
from receiver.storage.layout import DEFAULT, Layout
from receiver.storage.packing import SUFFIXES
from receiver.verify.findings import Difference

__all__ = ["Examined", "HostReport", "Order", "Place"]


@dataclass(frozen=True, slots=True)
class Order:
    """What is compared with what; `keeps` says that the receiver removes old segments, and may have removed all.

    `progress` is a folder where tasks say how far they are; those of other machines have none of that name.
    """

    output: Path
    progress: Path
    state: Path
    reader: Reader
    keeps: bool
    path_template: str = DEFAULT
    time_zone: str = "UTC"

    def forms(self, live: str) -> tuple[str, ...]:
        """Return the names of a live file; of a day that is over it is compressed under its own."""
        has_date = Layout(self.path_template).has_date
        return (live, *(live + suffix for suffix in SUFFIXES.values())) if has_date else (live,)


@dataclass(frozen=True, slots=True)
class Place:
    """A difference, and where it is, for a person."""

    difference: Difference
    where: str


@dataclass(frozen=True, slots=True)
class HostReport:
    """A host's file: how many bytes were compared, how many older ones it no longer holds, and what differs.

    `live` is the name of the live file.

    `holes` are the numbers of closed segments that are not there although older ones are, where lines are missing.
    """

    partition: int
    host: str
    live: str
    size: int
    pruned: int = 0
    holes: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether everything that should be there is."""
        return not self.places


@dataclass(frozen=True, slots=True)
class Examined:
    """A unit that was compared; `size` is in bytes, `refused` counts messages that hold no lines."""

    partition: int
    hosts: int
    size: int
    refused: int
    reports: tuple[HostReport, ...]
