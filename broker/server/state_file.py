"""`broker.json` in a broker's folder: where the broker that runs there is reached, and which credentials it has taken over."""

import json
import time
from pathlib import Path
from typing import Any

from broker.app.exits import OperatorError
from broker.app.files import read_file, write_atomic
from broker.auth.store_file import load_credentials
from broker.server.store import is_locked

__all__ = ["await_credentials", "read_state", "remove_state", "write_state"]

_FILE = "broker.json"
_MODE = 0o600  # the path of the monitoring is a secret
_LOOK_EVERY = 0.02  # seconds
_PATIENCE = 60.0  # seconds that a running broker may take to read thousands of credentials
_BEGINS = 10.0  # seconds until a broker is ready; one that takes longer waits for others, or recovers a large store


def write_state(folder: Path, **state: Any) -> None:
    """Put in place what a broker that serves clients writes; raises `OperatorError`."""
    write_atomic(folder / _FILE, json.dumps(state, indent=2) + "\n", _MODE)


def remove_state(folder: Path) -> None:
    """Remove what a broker wrote; raises OSError."""
    (folder / _FILE).unlink(missing_ok=True)


def read_state(folder: Path) -> dict[str, Any]:
    """Return what the broker of a folder has written; empty when there is nothing (yet)."""
    try:
        content = json.loads(read_file(folder / _FILE))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def await_credentials(folder: Path, revision: int, patience: float = _PATIENCE) -> str:
    """Wait until the broker of a folder, if one runs, has taken over credentials of this revision; return what to say of that.

    Raises `OperatorError` where the broker refuses them, or does not take them within `patience` seconds. One that is not ready is
    waited for less long: it reads the credentials when it is.
    """
    began = time.monotonic()
    while is_locked(folder):
        credentials, waited = read_state(folder).get("credentials"), time.monotonic() - began
        if not isinstance(credentials, dict):
            if waited >= _BEGINS:
                return (
                    f"the broker of {folder} is not ready yet (it may wait for its cluster, see its log); "
                    "the change is stored and is in force as soon as it is, or from its next start"
                )
        elif _is_taken(folder, credentials.get("revision"), revision):
            return "the broker has taken the change"
        elif (credentials.get("refused") or -1) >= revision:
            raise OperatorError(
                f"the change is stored, but the broker keeps the current credentials: {credentials.get('reason')}"
            )
        elif waited >= patience:
            raise OperatorError(
                f"the change is stored, but the broker has not taken it within {patience:g} s; see its log"
            )
        time.sleep(_LOOK_EVERY)
    return f"no broker runs on {folder}; the change is in force from the next start"


def _is_taken(folder: Path, loaded: int | None, revision: int) -> bool:
    # a higher one is a later change, or of credentials that were replaced by older ones
    return loaded == revision or bool(
        loaded and loaded > revision and loaded == load_credentials(folder).revision
    )
