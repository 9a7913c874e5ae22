"""What a cluster needs of us: a master that answers before a JVM is started for it, and our packages for its executors.

Spark itself says only after a minute that no master is there. An executor needs a Python of the same minor version and
platform, and nothing of ours installed: Spark brings it the archive.
"""

import importlib.util
import socket
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from broker.app.exits import ConfigurationError, OperatorError

__all__ = ["FOLDER", "check_masters", "pack"]

FOLDER = "logship"
"""The name of the folder, in an executor's own, in which Spark unpacks the archive."""

_SCHEME = "spark://"
_PATIENCE = 5.0  # seconds for a connection
_NEEDED = ("broker", "receiver", "nats", "zstandard")
_WHERE_THERE = ("nacl", "cffi", "_cffi_backend")  # keys are signed with it; an extra
_SKIPPED = {"__pycache__", "tests"}


def check_masters(master: str, patience: float = _PATIENCE) -> None:
    """Return as soon as one of the masters of `spark://host:port,host:port` takes a connection; any other URL is not asked.

    Each is given `patience` seconds. Raises OperatorError saying why none does, `ConfigurationError` for what is no such
    address.
    """
    if not master.startswith(_SCHEME):
        return
    refusals = []
    for host, port in [_address(part, master) for part in master.removeprefix(_SCHEME).split(",")]:
        try:
            socket.create_connection((host, port), patience).close()
        except OSError as error:
            refusals.append(f"{host}:{port}: {error.strerror or error}")
        except UnicodeError:  # a name that no look-up takes
            refusals.append(f"{host}:{port}: no name of a machine")
        else:
            return
    raise OperatorError(
        f"no Spark master answers at {master}: {'; '.join(refusals)}; start it, or give another --master"
    )


def _address(part: str, master: str) -> tuple[str, int]:
    with suppress(ValueError):
        parsed = urlsplit(f"//{part}")
        if parsed.hostname and parsed.port:
            return parsed.hostname, parsed.port
    raise ConfigurationError(
        f"{master} is no address of a Spark master; give --master spark://host:port"
    )


def pack(folder: Path) -> Path:
    """Write the archive into a folder and return its path; raises `OperatorError` when there is no room for it."""
    archive = folder / f"{FOLDER}.zip"
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for path, name in _contents():
                file.write(path, name)
    except OSError as error:
        raise OperatorError(
            f"cannot write {archive} for the executors: {error.strerror or error}"
        ) from None
    return archive


def _contents() -> Iterator[tuple[Path, str]]:
    for package in map(Path, (*_NEEDED, *_WHERE_THERE)):
        spec = importlib.util.find_spec(package.name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            yield origin, origin.name
            continue
        for path in sorted(origin.parent.rglob("*")):
            inner = path.relative_to(origin.parent)
            if path.is_file() and not _SKIPPED.intersection(inner.parts):
                yield path, str(package / inner)
