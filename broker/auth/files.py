"""Reads and changes the credential store on disk, and makes the file that a holder gets.

A store that is damaged, or of a newer logship, is refused and never replaced. A crash during a
write leaves the old file or the new one.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.auth.credentials import EMPTY, Credential, CredentialKind, CredentialStore, parse_store
from broker.auth.permissions import API
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.files import make_folder, open_folder, report_errors, write_for_owner
from nats_logship.app.locks import lock
from nats_logship.app.secret_files import head_of
from nats_logship.wire.subjects import make_inbox

CREDENTIALS = "credentials.json"
"""The name of the credential store in the broker's directory."""


def load_credentials(folder: Path) -> CredentialStore:
    """Return the credential store of a broker's directory, `EMPTY` if there is none.

    Raises `ConfigurationError`.
    """
    path = folder / CREDENTIALS
    try:
        with open_folder(folder) as opened:
            return parse_store(opened.read(CREDENTIALS).decode("utf-8"))
    except FileNotFoundError:
        return EMPTY
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {error.filename or path}: {error.strerror}; run this as the broker's user"
        ) from None
    except ValueError as error:  # a CredentialError, or the text is not UTF-8
        raise ConfigurationError(
            f"{path} {error}; restore a copy of it, or move it away and add all credentials again"
        ) from None


def change_credentials(
    folder: Path, change: Callable[[CredentialStore], CredentialStore]
) -> tuple[CredentialStore, CredentialStore]:
    """Change the credential store of a directory, and return it before and after.

    A missing directory or store is created. The store belongs to the owner of the directory, even
    if root writes it. Waits while another program changes it. Raises `OperatorError`, and what
    `change` raises.
    """
    with report_errors(folder, "open"):
        opened = make_folder(folder)
    with opened:
        lock(opened.descriptor)  # a lock on the folder itself, until it is closed
        before = load_credentials(folder)
        after = change(before)
        write_for_owner(opened, CREDENTIALS, after.as_json())
    return before, after


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """The file that the holder of a credential gets; `authority` is PEM, empty for none."""

    credential: Credential
    seed: str = field(repr=False)
    servers: Sequence[str] = ()
    authority: str = ""

    @property
    def name(self) -> str:
        """The default name of the file, e.g. `host-web01.toml`."""
        kind, name = self.credential.holder
        return f"{kind.value}.toml" if name == kind.value else f"{kind.value}-{name}.toml"

    def as_toml(self, file: str) -> str:
        """Return the text of the file, with the settings for the program of this kind.

        `file` is the name of the file, for the comment in it.
        """
        settings = {
            **({"server": list(self.servers)} if self.servers else {}),
            **_build_settings(self.credential),
            **({"tls_ca_pem": self.authority} if self.authority else {}),
            "nkey_seed": self.seed,
        }
        lines = [
            head_of(self.credential.holder),
            f"# give it to the program with {self.option} {file}",
            *(f"{key} = {_render_toml(value)}" for key, value in settings.items()),
        ]
        return "\n".join(lines) + "\n"

    @property
    def option(self) -> str:
        """The option of the program that takes the file."""
        return "--site-nkey" if self.credential.kind is CredentialKind.SITE else "--config"


def _build_settings(credential: Credential) -> dict[str, Any]:
    inbox = {"inbox_prefix": make_inbox(credential.name), "api_prefix": API}
    match credential.kind:
        case CredentialKind.HOST:
            return {"host": credential.name, **inbox}
        case CredentialKind.RECEIVER:
            return {"partition": [str(one) for one in credential.partitions] or ["all"], **inbox}
        case CredentialKind.MONITOR:
            return inbox
        case CredentialKind.ADMIN | CredentialKind.SITE:
            return {}


def _render_toml(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:  # PEM holds no text that TOML would escape
        return f'"""\n{value}"""'
    return json.dumps(value, ensure_ascii=False)
