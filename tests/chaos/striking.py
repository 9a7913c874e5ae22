"""Carries out a stroke: begins and ends its faults on time, each in a thread of its own."""

import errno
import random
import threading
import time
from dataclasses import dataclass

from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.faults.fault import CannotStrike
from tests.chaos.runlog import RunLog
from tests.chaos.schedule import Fault, Stroke
from tests.chaos.world import World

__all__ = ["Struck", "strike"]

_DISK_FAULTS = {errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""What a disk answers on which another fault of the stroke is at work just then."""


@dataclass(slots=True)
class Struck:
    """What became of a fault: `struck`, or why not."""

    fault: Fault
    struck: bool = False
    error: BaseException | None = None


def strike(world: World, stroke: Stroke, log: RunLog) -> list[Struck]:
    """Carry out a stroke, and return when its last fault has ended; raises what a fault itself failed with."""
    results = [Struck(fault) for fault in stroke.faults]
    threads = [
        threading.Thread(target=_carry_out, args=(world, result, log), name=result.fault.kind)
        for result in results
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if result.error:
            raise RuntimeError(f"the fault {result.fault} failed itself") from result.error
    return results


def _carry_out(world: World, result: Struck, log: RunLog) -> None:
    fault = result.fault
    time.sleep(fault.at)
    try:
        end = CATALOGUE[fault.kind].act(world, random.Random(fault.seed))
        result.struck = True
        log.tell("struck", kind=fault.kind)
        time.sleep(fault.lasts)
        if end:
            end()
            log.tell("ended", kind=fault.kind)
    except CannotStrike as none:
        result.struck = False  # as its end may have seen
        log.tell("not struck", kind=fault.kind, why=str(none))
    except BaseException as error:  # noqa: BLE001 - told by the thread that waits
        if not result.struck and isinstance(error, OSError) and error.errno in _DISK_FAULTS:
            log.tell("not struck", kind=fault.kind, why=str(error))
        else:
            result.error = error
