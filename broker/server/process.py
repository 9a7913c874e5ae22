"""A process that a file names: signalled only when it is the one that was meant, whatever has its number by now."""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "Stranger", "this_process"]

_PROC = Path("/proc")
_BEGAN = 19  # which field it is of those behind the name
_UNKNOWN = 0
_ROOT = 0


class Stranger(Exception):
    """Another process than the one that was meant, or nobody can tell."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process by its number and when it began, in clock ticks since the boot: no two have both."""

    pid: int
    began: int

    def signal(self, number: int, user: int) -> None:
        """Signal it if it is there; raises `Stranger`, ProcessLookupError, PermissionError.

        Root does so only where it runs as `user` alone; nobody else may signal another user's. A descriptor holds the
        process from before the look until the signal, so that no other one gets its number.
        """
        if not hasattr(os, "pidfd_open") or self.pid <= 0:
            raise Stranger
        try:
            descriptor = os.pidfd_open(self.pid)
        except (ProcessLookupError, PermissionError):
            raise
        except (OSError, OverflowError):  # a thread's number, or a kernel before 5.3
            raise Stranger from None
        try:
            if _began(self.pid) != self.began or not _may(self.pid, user):
                raise Stranger
            signal.pidfd_send_signal(descriptor, number)
        except (FileNotFoundError, ValueError):
            raise Stranger from None
        finally:
            os.close(descriptor)


def this_process() -> Process:
    """Return the process that asks."""
    with suppress(FileNotFoundError):
        return Process(os.getpid(), _began(os.getpid()))
    return Process(os.getpid(), _UNKNOWN)


def _may(pid: int, user: int) -> bool:
    return os.geteuid() != _ROOT or _users(pid) == {user}


def _began(pid: int) -> int:
    stat = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    return int(stat.rpartition(")")[2].split()[_BEGAN])  # a name may hold anything


def _users(pid: int) -> set[int]:
    """Return as whom a process runs: its real, effective, saved and file system's user."""
    for line in (_PROC / str(pid) / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("Uid:"):
            return set(map(int, line.split()[1:]))
    return set()
