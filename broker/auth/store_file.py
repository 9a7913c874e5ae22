"""The credential store on disk, in the broker's directory: read, and changed by one program at a time, whole or not at all.

A file that is damaged or newer is refused with what to do, never replaced and never taken for an empty store. What if we
die while it is written? The atomic writer leaves the file as it was, or whole; the lock ends with the process.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import Folder, give, make_folder, open_folder, write_for_owner
from broker.auth.store import EMPTY, CredentialStore, InvalidStore, parse_store

__all__ = ["CREDENTIALS", "HeldCredentials", "held_credentials", "load_credentials"]

CREDENTIALS = "credentials.json"
"""The name of the credential store in the broker's directory."""

_LOCK = "credentials.lock"
_PATIENCE = 10.0  # seconds: another command that changes thousands takes some
_LOOK_EVERY = 0.02


def load_credentials(folder: Path) -> CredentialStore:
    """Return the credential store of a broker's directory, an open one where there is none; raises `ConfigurationError`."""
    try:
        with open_folder(folder) as opened:
            return _read(opened)
    except FileNotFoundError:
        return EMPTY
    except OSError as error:
        raise _unreadable(folder, error) from None


def _read(folder: Folder) -> CredentialStore:
    path = folder.path / CREDENTIALS
    try:
        return parse_store(folder.read(CREDENTIALS).decode("utf-8"))
    except FileNotFoundError:
        return EMPTY
    except OSError as error:
        raise _unreadable(path, error) from None
    except (InvalidStore, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, InvalidStore) else "is damaged: not UTF-8"
        raise ConfigurationError(
            f"{path} {reason}; put back a copy of it, or move it away and add all credentials again"
        ) from None


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"cannot read {path}: {error.strerror}; run this as the broker's user"
    )


@dataclass(slots=True)
class HeldCredentials:
    """A credential store that nobody else changes meanwhile."""

    folder: Folder
    store: CredentialStore

    def write(self, store: CredentialStore) -> None:
        """Put a changed store in place; raises `OperatorError`. Where root writes it, the owner of the directory gets it."""
        write_for_owner(self.folder, CREDENTIALS, store.as_json())
        self.store = store


@contextmanager
def held_credentials(folder: Path, patience: float = _PATIENCE) -> Iterator[HeldCredentials]:
    """Hold the credential store of a directory, which is made when it is not there.

    Raises `OperatorError` kinds, also when another program holds it for `patience` seconds.
    """
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(make_folder(folder))
            descriptor = opened.open(_LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            at = error.filename if error.filename != str(folder) else f"the store {folder}"
            raise OperatorError(
                f"cannot use {at}: {error.strerror}; check --store-dir and its owner"
            ) from None
        stack.callback(os.close, descriptor)
        give(descriptor, opened.owner)
        _lock(descriptor, folder, patience)
        yield HeldCredentials(opened, _read(opened))


def _lock(descriptor: int, folder: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() >= deadline:
            raise OperatorError(
                f"another program is changing the credentials of {folder}; try again when it is done"
            )
        time.sleep(_LOOK_EVERY)
