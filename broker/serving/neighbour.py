"""The broker that runs on a folder, seen by another program of this machine: whether it is there, and told of changes."""

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from broker.exits import OperatorError

__all__ = ["READY", "STORE_LOCK", "Taken", "Taking", "account_of", "is_held", "read_ready", "tell"]

READY = "broker.json"
"""What a running broker says of itself, in its folder."""
STORE_LOCK = "logbroker.lock"
"""The lock of a folder, held as long as a broker runs on it."""

_LOOK_EVERY = 0.02
_BEGINS = 10.0  # seconds that a broker may take to be ready; longer, and it waits for others, or brings back a large store


class Taken(Enum):
    """What became of a change that a broker was told of."""

    DONE = "done"
    NEXT_START = "next start"
    WHEN_READY = "when ready"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Taking:
    """What became of it, and what the broker said against it."""

    taken: Taken
    words: str = ""


def account_of(
    revision: int, secured: bool, refused: int | None = None, reason: str = ""
) -> dict[str, Any]:
    """Return what a broker puts into `READY` as `credentials`, for `tell` to read.

    `revision` is that of the book in force; `refused` that of a newer one which is not, for `reason`: None where there is
    none, or where it cannot even be read.
    """
    found: dict[str, Any] = {"revision": revision, "secured": secured}
    return found if refused is None else {**found, "refused": refused, "reason": reason}


def is_held(folder: Path) -> bool:
    """Whether a broker has this folder just now."""
    try:
        descriptor = os.open(folder / STORE_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def read_ready(folder: Path) -> dict[str, Any]:
    """Return what the broker of a folder says of itself; empty when it says nothing (yet)."""
    try:
        content = json.loads((folder / READY).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def tell(folder: Path, revision: int, patience: float) -> Taking:
    """Have the broker of a folder, if there is one, read its book again, and wait until it has `revision` of it.

    Waits `patience` seconds at most, and less for one that is not ready: it reads its book again when it is. Raises
    `OperatorError` for a broker of another user.
    """
    deadline = time.monotonic() + patience
    was_ready = time.monotonic()
    told: tuple[object, object] | None = None
    while is_held(folder):
        ready = read_ready(folder)
        loaded = _number(ready, "revision")
        # more than asked for is another command's change, or what stood in a book that was replaced since
        if loaded == revision or (told and loaded > revision):
            return Taking(Taken.DONE)
        if _number(ready, "refused") >= revision:
            return Taking(Taken.REFUSED, str(_credentials(ready).get("reason", "")))
        pid = ready.get("pid")
        life = (
            pid,
            ready.get("nats_server_pid"),
        )  # the next one may have read the book before this change
        if isinstance(pid, int) and life != told:
            _hang_up(pid, folder)
            told = life
        now = time.monotonic()
        was_ready = now if ready else was_ready
        if now - was_ready >= _BEGINS:
            return Taking(Taken.WHEN_READY)
        if now >= deadline:
            return Taking(Taken.UNKNOWN)
        time.sleep(_LOOK_EVERY)
    return Taking(Taken.NEXT_START)


def _credentials(ready: dict[str, Any]) -> dict[str, Any]:
    found = ready.get("credentials")
    return found if isinstance(found, dict) else {}


def _number(ready: dict[str, Any], name: str) -> int:
    found = _credentials(ready).get(name)
    return found if isinstance(found, int) else -1


def _hang_up(pid: int, folder: Path) -> None:
    try:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGHUP)
    except PermissionError:
        raise OperatorError(
            f"the broker of {folder} (process {pid}) is another user's and was not told; "
            f"as that user or root: kill -HUP {pid}"
        ) from None
