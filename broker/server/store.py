"""The broker's folder on disk: made, locked and measured; whether it may be run in a cluster, or alone, and with which key.

`broker.json` there says where the broker that runs is reached, and which credentials it has taken over.

Keys and ciphers are never changed in place, though nats-server (2.15.1) offers to: it loses consumers and empty streams by that,
with their sequences. And with a wrong key, or none, it takes a store for empty.
"""

import json
import os
import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from broker.auth.permissions import LOGS
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import STORE_LOCK, make_folder, open_folder, read_file, write_atomic
from nats_logship.app.locks import Lock, exclusive_lock, try_lock

_PATIENCE = 2.0  # seconds: a broker that was killed just now needs a moment to release its lock
_DATA = "jetstream"
_MEMBER = "cluster-member"
_STATE = "broker.json"
_CREDENTIALS_PATIENCE = 60.0  # seconds; a running broker may have to read thousands
_BEGINS = 10.0  # seconds until a broker is ready; one that takes longer waits for others, or recovers a large store


class Space(NamedTuple):
    """Space on the disk of a store, in bytes: left free, used by the store already, and the disk's size."""

    free: int
    held: int
    total: int


def lock_store(folder: Path) -> AbstractContextManager[int]:
    """Make the folder and hold its lock; gives the lock's file descriptor.

    A child that inherits the descriptor holds the lock too, so a nats-server that outlives its parent keeps others out.
    Raises `OperatorError` when another broker has it, and OSError.
    """
    make_folder(folder).close()
    held = f"another broker has the store {folder}; stop it, or choose another --store-dir"
    return exclusive_lock(folder / STORE_LOCK, _PATIENCE, held)


def is_locked(folder: Path) -> bool:
    """Whether a broker has this folder just now."""
    try:
        with open_folder(folder) as opened, os.fdopen(opened.open(STORE_LOCK, os.O_RDONLY)) as lock:
            return not try_lock(lock.fileno(), Lock.SHARED)
    except OSError:
        return False


def measure_space(folder: Path) -> Space:
    """Return how much space there is, and how much of it the store uses already."""
    usage, size = shutil.disk_usage(folder), 0
    for parent, _, names in os.walk(folder / _DATA):
        for name in names:
            try:
                size += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - ten times faster
            except FileNotFoundError:
                continue  # a file that is gone meanwhile uses no space
    return Space(usage.free, size, usage.total)


def list_stored_streams(folder: Path) -> frozenset[str]:
    """Return the names of the streams that a store has on disk, whatever their state."""
    found = (folder / _DATA / LOGS / "streams").glob("*/meta.inf")
    return frozenset(path.parent.name for path in found)


def has_run(folder: Path) -> bool:
    """Whether a broker has run in a directory, however it ended."""
    return (folder / _DATA).is_dir()


def remove_half_made_streams(folder: Path) -> None:
    """Have those streams made again that nats-server was making when it was killed.

    They hold nothing, and nobody was told of them. It would neither take them up nor complete them (2.15.1): their
    description has no checksum, and nothing is stored beside it.
    """
    for path in (folder / _DATA / LOGS / "streams").glob("*/meta.inf"):
        messages = path.with_name("msgs")
        is_made = path.with_name("meta.sum").exists() or (messages / "index.db").exists()
        if not is_made and not any(block.stat().st_size for block in messages.glob("*.blk")):
            path.unlink()


def check_membership(folder: Path, cluster: str, name: str) -> None:
    """Return when the store may be run in `cluster` (empty: alone) by a server called `name`, which is kept for the next start.

    A server of a cluster removes, after half a minute, every stream of its store that the cluster has not made (2.15.1); a
    server alone would let its copy diverge; and a server that returns under another name is a fourth one, with the third
    missing for ever. Raises `ConfigurationError` with the way round, and nothing is changed; or `OperatorError`.
    """
    data, known = folder / _DATA, folder / _MEMBER
    is_member = any(data.glob("*/_js_/_meta_"))
    before = read_file(known).decode("utf-8", "replace").strip() if known.exists() else name
    if cluster and not is_member and any(data.glob("*/streams/*")):
        raise ConfigurationError(
            f"the store {folder} has streams of a broker that was alone, which a cluster would remove: take a `logbroker "
            "backup` of it while it runs alone, start the cluster with empty stores, and `logbroker restore` it there"
        )
    if is_member and (not cluster or before != name):
        raise ConfigurationError(
            f"the store {folder} is that of server {before} of a cluster: give its --cluster and --route, and --server-name "
            f"{before}; or an empty --store-dir to a new server"
        )
    if cluster:
        write_atomic(known, f"{name}\n")


def check_encryption(folder: Path, *, has_key: bool) -> None:
    """Refuse a store that is stored otherwise: nats-server would take it for empty, or convert it; a wrong key it names itself."""
    for meta in (folder / _DATA).glob("*/streams/*/meta.inf"):
        if meta.with_name("meta.key").exists() != has_key:
            found, way = "encrypted", "give its --encryption-key-file"
            if has_key:
                found, way = (
                    "in the clear",
                    "`logbroker backup`, and restore to an empty --store-dir",
                )
            raise ConfigurationError(
                f"{meta.parent} is {found}, and a store is not encrypted in place: {way}"
            )


def write_state(folder: Path, **state: Any) -> None:
    """Put in place what a broker that serves clients writes; raises `OperatorError`."""
    # the path of the monitoring is a secret
    write_atomic(folder / _STATE, json.dumps(state, indent=2) + "\n", 0o600)


def remove_state(folder: Path) -> None:
    """Remove what a broker wrote; raises OSError."""
    (folder / _STATE).unlink(missing_ok=True)


def read_state(folder: Path) -> dict[str, Any]:
    """Return what the broker of a folder has written; empty when there is nothing (yet)."""
    try:
        content = json.loads(read_file(folder / _STATE))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def wait_for_credentials(
    folder: Path, revision: int, patience: float = _CREDENTIALS_PATIENCE
) -> str:
    """Wait until a running broker has taken over credentials of this revision, and return what to say of that; raises `OperatorError`."""
    began = time.monotonic()
    while is_locked(folder):
        state, waited = read_state(folder), time.monotonic() - began
        if state.get("revision", -1) >= revision:
            return "the broker has taken the change"
        if not state and waited >= _BEGINS:
            return (
                f"the broker of {folder} is not ready yet (it may wait for its cluster, see its log); "
                "the change is stored and is in force as soon as it is, or from its next start"
            )
        if waited >= patience:
            raise OperatorError(
                f"the change is stored, but the broker has not taken it within {patience:g} s; see its log"
            )
        time.sleep(0.02)
    return f"no broker runs on {folder}; the change is in force from the next start"
