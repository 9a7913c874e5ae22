"""The broker's folder on disk: made, locked and measured; whether it may be run in a cluster, or alone, and with which key.

Keys and ciphers are never changed in place, though nats-server (2.15.1) offers to: it loses consumers and empty streams by that,
with their sequences. And with a wrong key, or none, it takes a store for empty.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import make_folder, open_folder, read_file, write_atomic
from broker.auth.accounts import LOGS
from broker.server.conf import KEY_VARIABLE, quoted
from broker.settings import SecuritySettings
from broker.wire.streams import streams_among

__all__ = [
    "Encryption",
    "Space",
    "check_membership",
    "clear_half_made",
    "count_streams",
    "encryption_of",
    "is_locked",
    "locked_store",
    "measure",
    "remember_membership",
    "store_error",
    "streams_in",
]

_LOCK = "logbroker.lock"
_PATIENCE = 2.0  # seconds: a broker that was killed just now needs a moment to release its lock
_DATA = "jetstream"
_MEMBER = "cluster-member"
_SHORTEST_KEY = 16  # bytes
_CIPHERS = {"chacha20": "chachapoly", "aes": "aes"}  # as settings and as nats-server call them
_KEY_SIZES = {"chacha20": 72, "aes": 64}  # bytes of a stream's own key: seed, nonce and tag


@dataclass(frozen=True, slots=True)
class Space:
    """Space on the disk of a store, in bytes: left free, used by the store already, and the disk's size."""

    free: int
    held: int
    total: int


@contextmanager
def locked_store(folder: Path) -> Iterator[int]:
    """Make the folder and hold its lock; gives the lock's file descriptor.

    A child that inherits the descriptor holds the lock too, so a nats-server that outlives its parent keeps others out.
    Raises `OperatorError` when the folder cannot be used or another broker has it.
    """
    try:
        with make_folder(folder) as opened:
            descriptor = opened.open(_LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise store_error(folder, error) from None
    try:
        _lock(descriptor, folder)
        yield descriptor
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a broker has this folder just now."""
    try:
        with open_folder(folder) as opened:
            descriptor = opened.open(_LOCK, os.O_RDONLY)
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


def store_error(folder: Path, error: OSError) -> Exception:
    """Return an error of the store's disk as one for a person; any other one as it is."""
    if not Path(error.filename or ".").is_relative_to(folder):
        return error
    return OperatorError(
        f"cannot use the store {folder}: {error.strerror}; check --store-dir and its owner"
    )


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                raise OperatorError(
                    f"another broker (process {owner or 'unknown'}) has the store {folder}; "
                    "stop it, or choose another --store-dir"
                ) from None
        time.sleep(0.02)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        error.filename = str(folder / _LOCK)
        raise store_error(folder, error) from None


def measure(folder: Path) -> Space:
    """Return how much space there is, and how much of it the store uses already."""
    usage, size = shutil.disk_usage(folder), 0
    for parent, _, names in os.walk(folder / _DATA):
        for name in names:
            try:
                size += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - ten times faster
            except FileNotFoundError:
                continue  # a file that is gone meanwhile uses no space
    return Space(usage.free, size, usage.total)


def streams_in(folder: Path) -> frozenset[str]:
    """Return the names of the streams that a store has on disk, whatever their state."""
    found = (folder / _DATA / LOGS / "streams").glob("*/meta.inf")
    return frozenset(path.parent.name for path in found)


def clear_half_made(folder: Path) -> None:
    """Have those streams made again that nats-server was making when it was killed.

    They hold nothing, and nobody was told of them. It would neither take them up nor complete them (2.15.1): their
    description has no checksum, and nothing is stored beside it.
    """
    for path in (folder / _DATA / LOGS / "streams").glob("*/meta.inf"):
        messages = path.with_name("msgs")
        is_made = path.with_name("meta.sum").exists() or (messages / "index.db").exists()
        if not is_made and not any(block.stat().st_size for block in messages.glob("*.blk")):
            path.unlink()


def count_streams(folder: Path) -> int:
    """Return how many streams of partitions a store has on disk, 0 where it has none."""
    return streams_among(streams_in(folder))


def check_membership(folder: Path, cluster: str, name: str) -> None:
    """Return when the store in `folder` may be run in `cluster` (empty: alone) by a server called `name`.

    A server of a cluster removes, after half a minute, every stream of its store that the cluster has not made (2.15.1); a
    server alone would let its copy diverge; and a server that returns under another name is a fourth one, with the third
    missing for ever. Raises `ConfigurationError` with the way round; nothing is changed.
    """
    data = folder / _DATA
    is_member = any(data.glob("*/_js_/_meta_"))
    if cluster and not is_member and any(data.glob("*/streams/*")):
        raise ConfigurationError(
            f"the store {folder} has streams of a broker that was alone, which a cluster would remove: take a `logbroker "
            "backup` of it while it runs alone, start the cluster with empty stores, and `logbroker restore` it there"
        )
    if not cluster and is_member:
        raise ConfigurationError(
            f"the store {folder} is of a server of a cluster: give its --cluster, --route and --server-name, or another "
            "--store-dir"
        )
    before = ""
    if (folder / _MEMBER).exists():
        before = read_file(folder / _MEMBER).decode("utf-8", "replace").strip()
    if cluster and is_member and before not in {"", name}:
        raise ConfigurationError(
            f"the store {folder} is that of server {before}: give --server-name {before}, or an empty store to a new server"
        )


def remember_membership(folder: Path, cluster: str, name: str) -> None:
    """Keep by which name the server of a cluster is known there; raises `OperatorError`."""
    if cluster:
        write_atomic(folder / _MEMBER, f"{name}\n")


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a store is encrypted; `cipher` is nats-server's name of one, None for a store in the clear."""

    cipher: str | None = None
    key: str = field(default="", repr=False)

    def environment(self) -> dict[str, str]:
        """Return what nats-server is to find in its environment: it reads a variable as a piece of configuration."""
        return {KEY_VARIABLE: quoted(self.key)} if self.cipher else {}


def encryption_of(settings: SecuritySettings, folder: Path) -> Encryption:
    """Return how the store in `folder` is encrypted.

    Raises `ConfigurationError` for a key that cannot be used, and for a store that is encrypted otherwise: nats-server would take
    it for empty, or convert it. That the key is another one nats-server says itself.
    """
    file, cipher = settings.encryption_key_file, settings.encryption_cipher
    for meta in (folder / _DATA).glob("*/streams/*/meta.inf"):
        key = meta.with_name("meta.key")
        size = key.stat().st_size if key.exists() else 0
        if file and not size:
            raise ConfigurationError(
                f"{meta.parent} is in the clear, and a store is not encrypted in place: take a `logbroker backup` of it, start "
                "with an empty --store-dir and the new key, and `logbroker restore` there"
            )
        if size and not (file and size == _KEY_SIZES[cipher]):
            found = next((name for name, own in _KEY_SIZES.items() if own == size), "unknown")
            raise ConfigurationError(
                f"{meta.parent} is encrypted, and would be taken for empty or converted; give its --encryption-key-file and "
                f"encryption_cipher = {found!r}"
            )
    if file is None:
        return Encryption()
    return Encryption(_CIPHERS[cipher], _read_key(file))


def _read_key(file: Path) -> str:
    try:
        key = file.read_text("utf-8").removesuffix("\n")
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {file}: {error.strerror}; check --encryption-key-file"
        ) from None
    except UnicodeDecodeError:
        key = ""
    if len(key.encode()) < _SHORTEST_KEY or not key.isprintable():
        raise ConfigurationError(
            f"{file} is no key: it should hold a line of text of at least {_SHORTEST_KEY} bytes, as from `openssl rand -hex 32`"
        )
    return key
