"""What nats-server's word on its health means: whether it answers, and whether a write failed. Decides only.

After a failed write a stream takes nothing more, though there be space again, until the server is restarted. In a cluster,
where the failed write was one of Raft's, the server does without JetStream altogether from then on.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

__all__ = ["Healing", "Health", "enough_space", "read_health", "tells_of_failed_write"]

_FAILED_WRITE = re.compile(
    r"write error: ?(?P<reason>.*)|JetStream (not enabled|out of (\w+ )?resources)", re.IGNORECASE
)
_LEAST = 8 * 1024**2  # bytes: files of the server grow by as much
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Health:
    """What a server says of itself; `frozen` is the write that failed, empty as long as it takes lines."""

    server: str
    ailing: str = ""
    frozen: str = ""


def read_health(data: bytes) -> Health | None:
    """Read an answer of `$SYS.REQ.SERVER.PING.HEALTHZ`; None for what is none."""
    try:
        answer = json.loads(data)
        server, told = answer["server"]["name"], answer["data"]
    except (ValueError, TypeError, KeyError):
        return None
    error = str(told.get("error") or "") if isinstance(told, Mapping) else ""
    return Health(str(server), error, tells_of_failed_write(error) + _among(told))


def _among(told: Any) -> str:
    errors = told.get("errors") if isinstance(told, Mapping) else None
    texts = [str(one.get("error", "")) for one in errors or () if isinstance(one, Mapping)]
    return next(filter(None, map(tells_of_failed_write, texts)), "")


def tells_of_failed_write(text: str) -> str:
    """Return the write that failed, by what the server says; empty when it is about something else."""
    found = _FAILED_WRITE.search(text)
    return found["reason"] or text if found else ""


def enough_space(free: int, reserve: int) -> bool:
    """Whether a server may be started again on a disk with `free` bytes, of which `reserve` should stay free.

    At half of the reserve, from where on less of it is used up; what the stream may hold is then what it holds.
    """
    return free >= max(reserve // 2, _LEAST)


@dataclass(frozen=True, slots=True)
class Healing:
    """How often a server was restarted lately, for a failed write or as it hung, and when that was, in seconds of a clock."""

    times: int = 0
    last: float = 0.0

    def may_begin(self, now: float) -> bool:
        """Whether it is time to try; each time after a longer pause, as long as that does not help."""
        pause = min(_FIRST_PAUSE * 2 ** min(self.times - 1, 10), _LONGEST_PAUSE)
        return not self.times or now - self.last >= pause.total_seconds()

    def begun(self, now: float) -> "Healing":
        """Return the same after another restart."""
        helped = now - self.last > 2 * _LONGEST_PAUSE.total_seconds()
        return Healing(1 if helped else self.times + 1, now)
