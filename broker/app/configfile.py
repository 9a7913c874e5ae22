"""The files of settings of a program: each read once, whole, and told by file and line where it will not do."""

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.app.exits import ConfigurationError
from broker.app.tomllines import Fault, fault_of, lines_of_keys

__all__ = ["ConfigFile", "credential_file", "read_config", "read_configs"]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A TOML file: where it is, its text, and what that says."""

    path: Path
    text: str
    content: Mapping[str, Any]

    def line(self, key: str) -> str:
        """Return where a key stands, as `FILE:LINE`."""
        number = lines_of_keys(self.text).get(key)
        return f"{self.path}:{number}" if number else str(self.path)


def credential_file(program: str, environment: Mapping[str, str]) -> Path | None:
    """Return the file of settings that the service manager hands over in secret, where it does (LoadCredential=)."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    with suppress(OSError):  # that's fine: a folder that we may not enter is another service's
        if folder and (path := Path(folder, f"{program}.toml")).exists():
            return path
    return None


def read_configs(paths: Sequence[Path | None]) -> tuple[ConfigFile, ...]:
    """Read those files that there are, in that order; raises what `read_config` raises."""
    return tuple(read_config(path) for path in paths if path is not None)


def read_config(path: Path) -> ConfigFile:
    """Read a file; raises `ConfigurationError` when it cannot be read or is no TOML."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"cannot read {path}: {reason}; check --config") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        fault = Fault(before.count(b"\n") + 1, column, f"a byte that is no UTF-8 ({error.reason})")
        raise ConfigurationError(f"{path}:{fault}; not valid TOML") from None
    try:
        return ConfigFile(path, text, tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}:{fault_of(text, error)}; not valid TOML") from None
