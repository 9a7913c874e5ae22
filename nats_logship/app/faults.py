"""Named points at which a test can kill or stop a program; without effect in production.

docs/architecture.md lists the points along a line's journey.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "LOGSHIP_FAULTS"
"""Names a folder. A file there with a point's name has the first program that gets there killed.

The file is removed first; if it has bytes, one of them is cut off instead, and nothing happens.
`<point>.stop` sends SIGSTOP instead of SIGKILL.
"""


def fault(point: str) -> None:
    """Die by SIGKILL, or stop by SIGSTOP, if a test asks for it at this point."""
    if (folder := os.environ.get(VARIABLE)) is None:
        return
    for name, number in ((point, signal.SIGKILL), (f"{point}.stop", signal.SIGSTOP)):
        path = Path(folder, name)
        with suppress(FileNotFoundError):
            if left := path.stat().st_size:
                os.truncate(path, left - 1)
                continue
            path.unlink()
            os.kill(os.getpid(), number)
