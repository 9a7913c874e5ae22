"""The credential file that an operator carries to a host or a receiver: settings that its program takes as they are."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.app.exits import OperatorError
from broker.app.files import open_folder, write_atomic
from broker.auth.permissions import API
from broker.auth.store import Credential, CredentialKind
from broker.wire.subjects import inbox_of

__all__ = ["CredentialFile", "remove_files", "write_files"]

_MODE = 0o600
_HINTS = {
    CredentialKind.HOST: "logshipper --config {file} --file /var/log/app.log",
    CredentialKind.RECEIVER: "logreceiver --config {file} --output /var/log/logship",
    CredentialKind.ADMIN: "logbroker status --config {file}",
    CredentialKind.MONITOR: "logbroker status --config {file}",
    CredentialKind.SITE: "logbroker run --site-nkey {file} --site {name} --site-remote nats-leaf://HOST:7422 ...",
}


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """What the holder of a credential needs; `authority` (PEM) is what the broker's certificate is checked against."""

    credential: Credential
    seed: str = field(repr=False)
    servers: Sequence[str] = ()
    authority: str = ""

    @property
    def name(self) -> str:
        """What the file is called by default, e.g. `host-web01.toml`."""
        kind, name = self.credential.holder
        return f"{kind.value}.toml" if name == kind.value else f"{kind.value}-{name}.toml"

    def as_toml(self, file: str) -> str:
        """Return the text of a file of settings named `file`: those for the program of this kind."""
        settings = {
            **({"server": list(self.servers)} if self.servers else {}),
            **_own_settings(self.credential),
            **({"tls_ca_pem": self.authority} if self.authority else {}),
            "nkey_seed": self.seed,
        }
        lines = [
            f"# {self.credential.holder}: whoever has this file gets in as that, so nobody else may read it",
            f"# {self.hint(file)}",
            *(f"{key} = {_toml(value)}" for key, value in settings.items()),
        ]
        return "\n".join(lines) + "\n"

    def hint(self, file: str) -> str:
        """Return the command that uses the file."""
        return _HINTS[self.credential.kind].format(file=file, name=self.credential.name)


def write_files(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write files that only their owner may read, all or none; raises `OperatorError`.

    A file that is there already is replaced by `force` alone.
    """
    if not force and (there := [path for path in texts if os.path.lexists(path)]):
        raise OperatorError(
            f"{there[0]} is there already; --force replaces it, --output names another file"
        )
    written: list[Path] = []
    try:
        for path, text in texts.items():
            write_atomic(path, text, _MODE)
            written.append(path)
    except OperatorError:
        remove_files(written)
        raise


def remove_files(paths: Sequence[Path]) -> None:
    """Remove files whose secrets turned out to be of no use."""
    for path in paths:
        with suppress(OSError), open_folder(path.parent) as folder:
            folder.remove(path.name)


def _own_settings(credential: Credential) -> dict[str, Any]:
    inbox = {"inbox_prefix": inbox_of(credential.name), "api_prefix": API}
    match credential.kind:
        case CredentialKind.HOST:
            return {"host": credential.name, **inbox}
        case CredentialKind.RECEIVER:
            shares = [str(number) for number in credential.partitions]
            return {"partition": shares or ["all"], **inbox}
        case CredentialKind.MONITOR:
            return inbox
        case CredentialKind.ADMIN | CredentialKind.SITE:
            return {}


def _toml(value: Any) -> str:
    is_pem = (
        isinstance(value, str) and "\n" in value
    )  # which holds nothing that TOML reads otherwise
    return f'"""\n{value}"""' if is_pem else json.dumps(value, ensure_ascii=False)
