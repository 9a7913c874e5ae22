"""Other hands at received files: live files are moved away or removed, under the receiver's hands or between its starts.

What such a file held is kept, and counts as far as the receiver names it.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, CannotStrike, FaultKind
from tests.chaos.hands import Taken
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS"]

_TURNS = threading.Lock()
_COMMITTED = 3.0  # seconds
_ENOUGH = 120.0  # seconds for what was taken before to be told


def _moved(live: Path, kept: Path) -> None:
    live.rename(kept)


def _removed(live: Path, kept: Path) -> None:
    os.link(live, kept)  # for us to see what stood there
    live.unlink()


def _take(world: "World", chance: random.Random, how: Callable[[Path, Path], None]) -> None:
    host = chance.choice(world.hosts).name
    live = world.output / f"{host}.log"
    (receiver,) = world.receivers
    with _TURNS, ExitStack() as stack:
        world.supervisor.wait(
            "what was taken is told",
            lambda: all(one.told() is not None for one in world.taken),
            _ENOUGH,
        )
        before = _inode(live)
        time.sleep(_COMMITTED)  # of a file just begun nothing may be committed, and so nothing told
        if chance.random() < 0.5:  # between two starts
            stack.enter_context(receiver.held())
            receiver.process.kill()
            stack.enter_context(world.locked())
        if _inode(live) != before:
            raise CannotStrike("the live file is a new one")
        kept = world.output.parent / f"taken.{len(world.taken)}"
        since = receiver.log.stat().st_size
        how(live, kept)
        world.taken.append(Taken(host, kept, _closed(world.output, live), receiver.log, since))


def _inode(live: Path) -> int:
    try:
        found = live.stat()
    except FileNotFoundError:
        raise CannotStrike("there is no live file") from None
    if not found.st_size:
        raise CannotStrike("the live file is empty")
    return found.st_ino


def _closed(output: Path, live: Path) -> int:
    """Return how many closed files a host has, in whatever form."""
    names = (path.name.removeprefix(f"{live.name}.") for path in output.glob(f"{live.name}.*"))
    return len({name[:6] for name in names})


def _act(how: Callable[[Path, Path], None]) -> Act:
    def act(world: "World", chance: random.Random) -> None:
        """Take a received file away, while its receiver runs or is dead."""
        _take(world, chance, how)

    return act


KINDS = tuple(
    FaultKind(Kind(name, weight=0.3, needs=frozenset({"alone"}), destroys=True), _act(how))
    for name, how in {"received-moved": _moved, "received-removed": _removed}.items()
)
