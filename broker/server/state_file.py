"""`broker.json` in a broker's folder: where the broker that runs there is reached, and which credentials it has taken over."""

import json
import time
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from broker.app.files import read_file, write_atomic
from broker.auth.store_file import load_credentials
from broker.server.store import is_locked

__all__ = ["Credentials", "State", "Taken", "Taking", "await_credentials", "read_state"]

_FILE = "broker.json"
_MODE = 0o600  # the path of the monitoring is a secret
_LOOK_EVERY = 0.02  # seconds
_BEGINS = 10.0  # seconds until a broker is ready; one that takes longer waits for others, or recovers a large store


@dataclass(frozen=True, slots=True)
class Credentials:
    """The revision of the credentials in force, and that of newer ones that were refused for a reason."""

    revision: int
    secured: bool
    refused: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What a broker that serves clients writes."""

    server: str
    http: str | None
    store_dir: str
    pid: int
    nats_server_pid: int
    credentials: Credentials

    def write(self, folder: Path) -> None:
        """Put it in place; raises `OperatorError`."""
        write_atomic(folder / _FILE, json.dumps(asdict(self), indent=2) + "\n", _MODE)

    @staticmethod
    def remove(folder: Path) -> None:
        """Remove what a broker wrote; raises OSError."""
        (folder / _FILE).unlink(missing_ok=True)


def read_state(folder: Path) -> dict[str, Any]:
    """Return what the broker of a folder has written; empty when there is nothing (yet)."""
    try:
        content = json.loads(read_file(folder / _FILE))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


class Taken(Enum):
    """What became of a change of the credentials."""

    DONE = "done"
    NEXT_START = "next start"
    WHEN_READY = "when ready"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Taking:
    """What became of the change, and why the broker refused it."""

    taken: Taken
    reason: str = ""


def await_credentials(folder: Path, revision: int, patience: float) -> Taking:
    """Wait until the broker of a folder, if one runs, has taken over credentials of this revision, which it does by itself.

    Waits `patience` seconds at most, and less for a broker that is not ready: it reads the credentials when it is.
    """
    began = was_ready = time.monotonic()
    while is_locked(folder):
        found = read_state(folder).get("credentials")
        credentials = found if isinstance(found, dict) else {}
        now = time.monotonic()
        was_ready = now if credentials else was_ready
        if _is_taken(folder, credentials.get("revision"), revision):
            return Taking(Taken.DONE)
        if (credentials.get("refused") or -1) >= revision:
            return Taking(Taken.REFUSED, str(credentials.get("reason", "")))
        if now - was_ready >= _BEGINS:
            return Taking(Taken.WHEN_READY)
        if now - began >= patience:
            return Taking(Taken.UNKNOWN)
        time.sleep(_LOOK_EVERY)
    return Taking(Taken.NEXT_START)


def _is_taken(folder: Path, loaded: int | None, revision: int) -> bool:
    # a higher one is a later change, or of credentials that were replaced by older ones
    return loaded == revision or bool(
        loaded and loaded > revision and loaded == load_credentials(folder).revision
    )
