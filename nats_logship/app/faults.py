"""Named points of a program at which a test can kill or stop it; inert unless the environment names a folder.

The tests of each end name its points, and a line's journey in docs/architecture.md says between which rooms they lie.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "LOGSHIP_FAULTS"
"""Names a folder. A file in it that is called like a point kills who comes there, and is removed first.

As often as the file has bytes, one of them is taken away instead. With `.stop` behind the point's name it is SIGSTOP: what
goes on a minute later is a zombie.
"""


def fault(point: str) -> None:
    """Die here by SIGKILL, or stop by SIGSTOP, once, when a test has asked for it."""
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
