"""Locks and measures the broker's folder, and checks it before nats-server opens it.

A store of a cluster opens only in this cluster, and an encrypted store only with its key. With
another key nats-server (2.15.1) would treat the store as empty. logbroker never changes the key:
nats-server can, but loses consumers and empty streams, with their sequences.

`broker.json` in the folder holds the running broker's addresses and its revision of credentials.
"""

import json
import os
import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from broker.auth.accounts import LOGS
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import (
    STORE_LOCK,
    make_folder,
    open_folder,
    read_file,
    report_errors,
    write_atomic,
)
from nats_logship.app.locks import Lock, exclusive_lock, try_lock

_PATIENCE = 2.0  # seconds for a broker that was just killed to release its lock
_DATA = "jetstream"
_MEMBER = "cluster-member"
_LARGEST = "largest-disk"
_STATE = "broker.json"
_CONF = "nats-server.conf"
_CONF_MODE = 0o600  # it holds secrets, such as that of a cluster
_CHANGE_PATIENCE = 60.0  # seconds; a running broker may have to read thousands
_STARTS = 10.0  # seconds until most brokers are ready


class Space(NamedTuple):
    """Bytes on the disk of a store: free, used by the store, and the size of the disk.

    `largest` is the size of the largest disk that the store was ever on: no limits of its streams
    are above that.
    """

    free: int
    held: int
    total: int
    largest: int


def lock_store(folder: Path) -> AbstractContextManager[int]:
    """Make the folder and hold its lock; yields the file descriptor of the lock.

    nats-server inherits the descriptor and so the lock: another broker cannot use the folder while
    a nats-server outlives its logbroker. Raises `OperatorError` if another broker has the lock,
    and OSError.
    """
    make_folder(folder).close()
    held = f"another broker uses the store {folder}; stop it, or choose another --store-dir"
    return exclusive_lock(folder / STORE_LOCK, _PATIENCE, held)


def is_locked(folder: Path) -> bool:
    """Return whether a broker runs on this folder."""
    try:
        with open_folder(folder) as opened, os.fdopen(opened.open(STORE_LOCK, os.O_RDONLY)) as lock:
            return not try_lock(lock.fileno(), Lock.SHARED)
    except OSError:
        return False


def measure_space(folder: Path) -> Space:
    """Return the space on the disk of a store, and remember the size of a larger disk."""
    usage, size = shutil.disk_usage(folder), 0
    for parent, _, names in os.walk(folder / _DATA):
        for name in names:
            try:
                # ten times faster than with pathlib
                size += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
            except FileNotFoundError:
                continue  # the file was removed meanwhile
    return Space(usage.free, size, usage.total, _remember_largest(folder, usage.total))


def _remember_largest(folder: Path, total: int) -> int:
    known = folder / _LARGEST
    text = read_file(known).decode("ascii", "replace").strip() if known.exists() else ""
    before = int(text) if text.isdecimal() else 0
    if total > before:
        write_atomic(known, f"{total}\n")
    return max(total, before)


def list_stored_streams(folder: Path) -> frozenset[str]:
    """Return the names of the streams on disk, also of damaged ones."""
    found = (folder / _DATA / LOGS / "streams").glob("*/meta.inf")
    return frozenset(path.parent.name for path in found)


def has_run(folder: Path) -> bool:
    """Return whether a broker has ever run on a folder."""
    return (folder / _DATA).is_dir()


def remove_half_made_streams(folder: Path) -> None:
    """Remove the streams that nats-server was creating when it was killed.

    They are empty, and their creation was never acknowledged. nats-server (2.15.1) would neither
    open nor complete them: `meta.inf` has no checksum, and there is no message.
    """
    for path in (folder / _DATA / LOGS / "streams").glob("*/meta.inf"):
        messages = path.with_name("msgs")
        is_made = path.with_name("meta.sum").exists() or (messages / "index.db").exists()
        if not is_made and not any(block.stat().st_size for block in messages.glob("*.blk")):
            path.unlink()


def check_membership(folder: Path, cluster: str, name: str) -> None:
    """Raise unless the server `name` may run the store in `cluster` (empty: alone).

    In a cluster nats-server (2.15.1) removes, after half a minute, every stream that the cluster
    did not create. A member that runs alone diverges from the others. Under another name it is a
    further member, and the cluster waits for the old one for ever. The name is stored for the next
    start. Raises `ConfigurationError` with the workaround, or `OperatorError`.
    """
    data, known = folder / _DATA, folder / _MEMBER
    is_member = any(data.glob("*/_js_/_meta_"))
    before = read_file(known).decode("utf-8", "replace").strip() if known.exists() else name
    if cluster and not is_member and any(data.glob("*/streams/*")):
        raise ConfigurationError(
            f"the store {folder} has streams of a broker that ran alone, which a cluster would "
            "remove: run it alone and take a `logbroker backup`, start the cluster with empty "
            "stores, and `logbroker restore` the backup there"
        )
    if is_member and (not cluster or before != name):
        raise ConfigurationError(
            f"the store {folder} is that of server {before} of a cluster: give its --cluster and "
            f"--route, and --server-name {before}; a new server needs an empty --store-dir"
        )
    if cluster and not (known.exists() and before == name):  # a full disk takes no new file
        write_atomic(known, f"{name}\n")


def check_encryption(folder: Path, *, has_key: bool) -> None:
    """Raise `ConfigurationError` for an encrypted store without a key, or a plain one with a key.

    nats-server would treat the first as empty, and convert the second. It logs a wrong key itself.
    """
    for meta in (folder / _DATA).glob("*/streams/*/meta.inf"):
        if meta.with_name("meta.key").exists() != has_key:
            if has_key:
                raise ConfigurationError(
                    f"{meta.parent} is not encrypted, and logbroker does not encrypt it in place: "
                    "`logbroker backup`, and restore to an empty --store-dir"
                )
            raise ConfigurationError(f"{meta.parent} is encrypted: give its --encryption-key-file")


def write_conf(folder: Path, text: str) -> Path:
    """Write the configuration of a server that does not read it now, and return its path.

    A full disk takes no second file, so there the earlier one is overwritten. Raises
    `OperatorError`.
    """
    path = folder / _CONF
    try:
        write_atomic(path, text, _CONF_MODE)
    except OperatorError:
        if not path.exists():
            raise
        with report_errors(path), path.open("r+", encoding="utf-8") as file:
            file.write(text)
            file.truncate()
    return path


def write_state(folder: Path, **state: Any) -> None:
    """Write the state of a ready broker; raises `OperatorError`."""
    # readable by the owner alone, since the path of the monitoring is a secret
    write_atomic(folder / _STATE, json.dumps(state, indent=2) + "\n", 0o600)


def remove_state(folder: Path) -> None:
    """Remove the state of a broker that is not ready any more; raises OSError."""
    (folder / _STATE).unlink(missing_ok=True)


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state of the broker on a folder; empty if no broker is ready there."""
    try:
        content = json.loads(read_file(folder / _STATE))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def wait_for_credentials(folder: Path, revision: int, patience: float = _CHANGE_PATIENCE) -> str:
    """Wait until a running broker uses credentials of this revision, and return the result as text.

    Raises `OperatorError` after `patience` seconds.
    """
    began = time.monotonic()
    while is_locked(folder):
        state, waited = read_state(folder), time.monotonic() - began
        if state.get("revision", -1) >= revision:
            return "the broker has taken the change"
        if not state and waited >= _STARTS:
            return (
                f"the broker of {folder} is not ready yet (see its log; it may wait for its "
                "cluster, or recover a large store); the change is stored, and in force once it is "
                "ready"
            )
        if waited >= patience:
            raise OperatorError(
                f"the change is stored, but the broker has not taken it within {patience:g} s; see "
                "its log"
            )
        time.sleep(0.02)
    return f"no broker runs on {folder}; the change is in force from the next start"
