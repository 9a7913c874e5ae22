"""Runs a program that is killed when its parent dies (prctl(2), PR_SET_PDEATHSIG).

Run by path as `parent_death.py <parent's pid> <program> <argument>…`, so it imports nothing of
ours. SIGKILL: a parent that was killed cannot wait, its successor needs the store at once, and the
broker's acknowledged messages are on disk.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent `parent` ends.

    Exits at once if the parent has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Become the program in the arguments."""
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
