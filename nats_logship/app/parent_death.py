"""The parent-death signal: become another program that ends with the process that started it.

Run as `parent_death.py <parent's pid> <program> <argument>…` by path, so it imports nothing of ours. The signal is SIGKILL: a parent that was killed can neither
wait nor ask twice, its successor wants the store at once, and nothing acknowledged is lost by it (`sync_interval:
always`).
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have this process get a signal when the process `parent` ends, which has started it; end at once when it is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before the signal was asked for, which will not come
        sys.exit(1)


def main() -> None:
    """Turn into the program that the arguments name."""
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
