"""An operator's own configuration of nats-server: checked by nats-server, and for what contradicts ours. Changes no file."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.server.conf_own import Key, contradiction, include, keys_of, where

__all__ = ["included"]

_DEEPEST = 20  # files within files


@dataclass(frozen=True, slots=True)
class _Place:
    file: Path
    key: Key


def included(binary: Path, own: Path, folder: Path, ours: str) -> str:
    """Return the line by which a configuration in `folder` includes the file `own`.

    `ours` is the text of that configuration. Raises `ConfigurationError` with file and line where nats-server does not
    take the file, or where it says what logbroker decides.
    """
    own = own.absolute()
    try:
        line = include(os.path.relpath(own, folder))  # nats-server takes it as beside its own file
    except ValueError as error:
        raise ConfigurationError(f"--nats-config {own}: {error}") from None
    own_keys = keys_of(ours)
    _check(binary, own)
    for place in _keys(own, 0):
        found = contradiction([place.key], own_keys)
        if found:
            key, way = found
            raise ConfigurationError(
                f"{place.file}:{key.line}: {key.name} cannot be set here: {way}"
            )
    return line


def _check(binary: Path, own: Path) -> None:
    try:
        asked = subprocess.run([binary, "-t", "-c", own], capture_output=True, check=False)
    except OSError as error:
        raise ConfigurationError(f"cannot run {binary}: {error.strerror}") from None
    if asked.returncode:
        said = (asked.stdout + asked.stderr).decode("utf-8", "replace").strip().splitlines()
        raise ConfigurationError(where(said[0] if said else "refused", str(own)))


def _keys(file: Path, depth: int) -> Iterator[_Place]:
    try:
        text = file.read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    for key in keys_of(text):
        if not key.value:
            yield _Place(file, key)
        elif depth < _DEEPEST:
            yield from _keys(file.parent / key.value, depth + 1)
        else:
            raise ConfigurationError(f"{file}:{key.line}: includes itself")
