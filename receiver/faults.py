"""Named points at which a test can kill a task; inert unless the environment names one."""

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
    "turn_announced",
    "turn_synced",
    "turned",
)
_VARIABLE = "LOGSHIP_FAULT"  # "<point>:<file>": die at the point as long as the file exists, which is removed first


def fault(point: str) -> None:
    """Die here by SIGKILL, once, when a test has asked for it."""
    wanted = os.environ.get(_VARIABLE)
    if wanted is None:
        return
    name, _, trigger = wanted.partition(":")
    if name != point:
        return
    try:
        Path(trigger).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
