"""Named points at which a test can kill or stop a task, or the driver; inert unless the environment names one."""

import os
import signal
from pathlib import Path

__all__ = ["POINTS", "fault"]

POINTS = (
    "fetched",
    "announced",
    "appended",
    "rotated",
    "synced",
    "spanned",
    "ended",
    "undone",
    "committed",
    "acknowledged",
    "reported",
    "heard",
    "turn_announced",
    "turn_synced",
    "turned",
)
# "<point>:<file>": die at the point as long as the file exists, which is removed first. As often as it has bytes, one of
# them is taken away instead. With "<point>:stop:<file>" it is SIGSTOP: what goes on a minute later is a zombie.
_STOP = "stop:"
_VARIABLE = "LOGSHIP_FAULT"


def fault(point: str) -> None:
    """Die here by SIGKILL, or stop by SIGSTOP, once, when a test has asked for it."""
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return
    name, _, trigger = wanted.partition(":")
    if name != point:
        return
    path = Path(trigger.removeprefix(_STOP))
    try:
        if left := path.stat().st_size:
            os.truncate(path, left - 1)
            return
        path.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGSTOP if trigger.startswith(_STOP) else signal.SIGKILL)
