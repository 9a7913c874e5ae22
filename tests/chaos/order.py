"""What is to be run, as a value and as a file: the shape of a world, and what strokes are drawn from. Knows no world."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.chaos.schedule import FaultKind

__all__ = ["Order", "Shape", "Wanted", "choose", "read_words"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The world of one run.

    `topology` is "single" or "cluster" (three brokers); `receivers` is "alone", "standby" (two of them compete for all
    partitions), or "spark" (a standalone cluster of a master and two workers). `secured` gives each program credentials
    of its own. `rate` is in lines per second and host, on average. `plain` has hosts write but lines of text, none of them
    twice, and rotate by renaming only: every suite can follow that, and a line that is destroyed is known by itself.
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which kinds of faults, by name; none of them means all. `most` is how many faults strike, None without a limit."""

    names: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A run that is to be: strokes are drawn from the shape's seed, for so many `minutes`, or without an end.

    `flow` is how many seconds it may take until lines flow again after a stroke; until all is received, twice that.
    """

    shape: Shape
    minutes: float | None = None
    wanted: Wanted = Wanted()
    destroy: bool = False
    flow: float = 90.0

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, path: Path) -> "Order":
        """Read such a file."""
        order = json.loads(path.read_text("utf-8"))
        wanted = Wanted(tuple(order["wanted"]["names"]), order["wanted"]["most"])
        return cls(
            Shape(**order["shape"]), order["minutes"], wanted, order["destroy"], order["flow"]
        )


def read_words(words: str, families: Mapping[str, Iterable[str]]) -> Wanted:
    """Read what a person asks for: "all", a number, names of kinds or families, with commas between them.

    Raises ValueError for a name that is none, with one that is like it.
    """
    names: list[str] = []
    most = None
    known = {name for kinds in families.values() for name in kinds}
    for word in filter(None, (word.strip() for word in words.split(","))):
        if word.isdigit():
            most = int(word)
        elif word in families:
            names += families[word]
        elif word in known:
            names.append(word)
        elif word != "all":
            like = difflib.get_close_matches(word, {*families, *known}, 1)
            hint = f": did you mean {like[0]}?" if like else " (--list tells them)"
            raise ValueError(f"no fault or family of faults is called {word!r}{hint}")
    return Wanted(tuple(dict.fromkeys(names)), most)


def choose(
    kinds: Sequence[FaultKind], wanted: Wanted, features: frozenset[str], destroy: bool
) -> tuple[list[FaultKind], list[str]]:
    """Return the kinds that are wanted and can be done where there are such features, and a sentence of others for each reason."""
    chosen: list[FaultKind] = []
    left_out: dict[str, list[str]] = {}
    for kind in kinds:
        if wanted.names and kind.name not in wanted.names:
            continue
        if missing := kind.needs - features:
            reason = f"needs {', '.join(sorted(missing))}"
            left_out.setdefault(reason, []).append(kind.name)
        elif kind.destroys and not destroy:
            left_out.setdefault("destroys, and --destroy is not given", []).append(kind.name)
        else:
            chosen.append(kind)
    return chosen, [f"{reason}: {', '.join(names)}" for reason, names in left_out.items()]
