"""Where the nats-server program is: the one named, the one of the package, or the one on PATH."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from broker.exits import ConfigurationError

__all__ = ["find"]

_PROGRAM = "nats-server"


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


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
