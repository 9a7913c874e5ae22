"""What is remembered of files that are gone, and that it does not grow for ever."""

import gc
import sys
from pathlib import Path

from broker.wire.positions import Cursor
from tests.descriptors import held_here
from tests.shipper.host import Host


def cursors() -> int:
    """Return how many cursors anything in this process holds."""
    gc.collect()
    return sum(isinstance(one, Cursor) for one in gc.get_objects())


async def test_memory_stays_flat_through_hundreds_of_rotations_and_passing_files(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, "*.log", grace=0.0)

    def position(file: str) -> int:
        # all is stored, and no position is kept of what is gone
        return sys.maxsize if any(s.file == file for s in host.follower.states()) else 0

    host.follower.stored = position
    before, known = held_here(), cursors()
    for number in range(400):
        host.write("app.log", b"%d\n" % number)
        host.write(f"passing-{number}.log", b"")
        await host.ship()
        (tmp_path / "app.log.1").unlink(missing_ok=True)
        host.move("app.log", "app.log.1")
        (tmp_path / f"passing-{number}.log").unlink()
    await host.ship()

    assert host.shipped.split() == [b"%d" % number for number in range(400)]
    assert len(host.follower.states()) <= 4
    assert cursors() - known < 400
    assert held_here() - before < 20
    await host.follower.close()
