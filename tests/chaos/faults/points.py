"""Faults at named points: a process of a receiver, or of a writer of tables, is killed there.

The points are those of `nats_logship.app.faults`. A point is passed several times before.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from threading import Lock

from tests.chaos.fault import CannotStrike, Chance, add, alone
from tests.chaos.world import World
from tests.receiver.points import IN_MAINTENANCE, IN_ROUND, IN_TABLE, IN_UNDO, POINTS

_LASTS = (1.0, 8.0)  # seconds
_LASTS_IN_TABLE = (4.0, 20.0)  # it commits each two seconds
_MOST_PASSES = 12  # by all partitions of a process, or of several
_FEW_PASSES = 3
_BEFORE_COMMIT = ("appended", "files_synced", "synced", "stored")
"""Lines are readable by then, and not committed, for as long as a batch gathers pulls."""

_armed = {point: Lock() for point in (*POINTS, *IN_TABLE)}


def _kill_at(
    world: World, chance: Chance, points: Sequence[Sequence[str]], most: int = _MOST_PASSES
) -> Iterator[None]:
    """Kill what comes to a point, one of each kind; those behind the first may be passed by."""
    drawn = [chance.choice(some) for some in points]
    with ExitStack() as stack:
        for point in drawn:
            stack.enter_context(alone(_armed[point], f"{point} kills already"))
            path = world.receiver_faults / point
            stack.callback(path.unlink, missing_ok=True)
            path.write_bytes(b"." * chance.randrange(most))
        yield
        if (world.receiver_faults / drawn[0]).exists():
            raise CannotStrike(f"nobody came to {drawn[0]}")


for _name, _points in {
    "kill-before-commit": (_BEFORE_COMMIT,),
    "kill-in-recovery": (_BEFORE_COMMIT, IN_UNDO),
    "kill-at-point": (POINTS,),
}.items():
    add(_name, partial(_kill_at, points=_points), _LASTS)
for _name, _table_points in {
    "kill-table-at-point": (IN_TABLE,),
    "kill-table-twice": (IN_ROUND, IN_MAINTENANCE),  # each start looks what there is to merge
}.items():
    act = partial(_kill_at, points=_table_points, most=_FEW_PASSES)
    add(_name, act, _LASTS_IN_TABLE, "table")
