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

from broker.app.exits import OperatorError
from broker.app.folder import open_folder
from broker.server.process import Process, Stranger

__all__ = ["READY", "STORE_LOCK", "Taken", "Taking", "account_of", "is_held", "read_ready", "tell"]

READY = "broker.json"
"""What a running broker says of itself, in its folder."""
STORE_LOCK = "logbroker.lock"
"""The lock of a folder, held as long as a broker runs on it."""

_LOOK_EVERY = 0.02
_NOBODY = -1
_SETTLES = 1.0  # seconds
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
        with open_folder(folder) as opened:
            descriptor = opened.open(STORE_LOCK, os.O_RDONLY)
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
    return _said(folder)[0]


def _said(folder: Path) -> tuple[dict[str, Any], int]:
    """Return what the broker of a folder says of itself, and as which user it says so."""
    try:
        with open_folder(folder) as opened:
            descriptor = opened.open(READY, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            content = json.loads(file.read())
            user = os.fstat(file.fileno()).st_uid
    except (OSError, ValueError):
        return {}, _NOBODY
    return (content, user) if isinstance(content, dict) else ({}, _NOBODY)


def tell(folder: Path, revision: int, patience: float) -> Taking:
    """Have the broker of a folder, if there is one, read its book again, and wait until it has `revision` of it.

    Waits `patience` seconds at most, and less for one that is not ready: it reads its book again when it is. Raises
    `OperatorError` for a broker of another user.
    """
    deadline = time.monotonic() + patience
    was_ready = time.monotonic()
    lives = _Lives(folder)
    while is_held(folder):
        ready, user = _said(folder)
        loaded = _number(ready, "revision")
        # more than asked for is another command's change, or what stood in a book that was replaced since
        if loaded == revision or (lives.told and loaded > revision):
            return Taking(Taken.DONE)
        if _number(ready, "refused") >= revision:
            return Taking(Taken.REFUSED, str(_credentials(ready).get("reason", "")))
        now = time.monotonic()
        if ready:
            lives.tell(ready, user, now)
            was_ready = now
        if now - was_ready >= _BEGINS:
            return Taking(Taken.WHEN_READY)
        if now >= deadline:
            return Taking(Taken.UNKNOWN)
        time.sleep(_LOOK_EVERY)
    return Taking(Taken.NEXT_START)


class _Lives:
    """The lives of a broker, of which each is told once: the next one may have read the book before the change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._strange_since: float | None = None
        self.told: tuple[Process, object] | None = None

    def tell(self, ready: dict[str, Any], user: int, now: float) -> None:
        """Tell the broker that says `ready` of itself, as `user`, unless it was; raises `OperatorError`."""
        process = Process(_count(ready.get("pid")), _count(ready.get("began")))
        life = (process, ready.get("nats_server_pid"))
        if life == self.told:
            return
        try:
            _hang_up(process, user, self._folder)
        except Stranger:
            # a broker that starts just now has not yet removed what the one before it said
            self._strange_since = now if self._strange_since is None else self._strange_since
            if now - self._strange_since >= _SETTLES:
                raise _not_told(process, self._folder) from None
        else:
            self.told, self._strange_since = life, None


def _credentials(ready: dict[str, Any]) -> dict[str, Any]:
    found = ready.get("credentials")
    return found if isinstance(found, dict) else {}


def _number(ready: dict[str, Any], name: str) -> int:
    found = _credentials(ready).get(name)
    return found if isinstance(found, int) else -1


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _hang_up(process: Process, user: int, folder: Path) -> None:
    try:
        with suppress(ProcessLookupError):
            process.signal(signal.SIGHUP, user)
    except PermissionError:
        raise OperatorError(
            f"the broker of {folder} (process {process.pid}) is another user's and was not told; "
            f"as that user or root: kill -HUP {process.pid}"
        ) from None


def _not_told(process: Process, folder: Path) -> OperatorError:
    return OperatorError(
        f"the change is in the book, and its broker was not told: process {process.pid}, which {folder / READY} names, "
        "is another one; have the broker read it by `systemctl reload` or SIGHUP where it runs, or start it again"
    )
