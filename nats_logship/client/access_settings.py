"""The settings of a connection to the broker, the same for all programs."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, SecretStr

from nats_logship.app.configuration import Many, ProgramSettings, option
from nats_logship.client.access import Access, check_prefix, check_servers, without_password

_SEEN = "all processes can read options: give it in the environment or the --config file"

File = Annotated[Path, AfterValidator(Path.absolute)]
"""The absolute path of a file: other processes use it too."""
Prefix = Annotated[str, AfterValidator(check_prefix)]


class AccessSettings(ProgramSettings):
    """The broker's addresses, the settings of `Access`, and those of every program."""

    section: ClassVar[str] = "Connection"
    secrets: ClassVar[Sequence[str]] = ("creds", "nkey", "tls_cert", "tls_key")
    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "TLS": ("tls_ca", "tls_cert", "tls_key", "tls_ca_pem", "tls_first")
    }

    server: Annotated[Many, AfterValidator(check_servers)] = option(
        ("nats://127.0.0.1:4222",), "URL", "Address of the broker; may be given several times."
    )
    creds: File | None = option(None, "FILE", "Credentials file of a NATS user: JWT and seed.")
    nkey: File | None = option(
        None, "FILE", "File with the seed of an nkey user, alone or as `nkey_seed` of settings."
    )
    nkey_seed: SecretStr | None = option(None, "SEED", f"Seed of an nkey user itself; {_SEEN}.")
    user: str = option("", "NAME", "Name of a user with a password.")
    password: SecretStr | None = Field(None, description=f"Password of --user; {_SEEN}.")
    tls_ca: File | None = option(
        None,
        "FILE",
        "Certificates to check the broker's certificate against; by default the system's. With "
        "this or any other option of TLS, or a tls:// address, nothing is sent unencrypted.",
    )
    tls_cert: File | None = option(None, "FILE", "Own certificate, if the broker asks for one.")
    tls_key: File | None = option(None, "FILE", "Private key of --tls-cert, if in another file.")
    tls_ca_pem: str = option(
        "", "PEM", "The text of --tls-ca itself, for a --config file without other files."
    )
    tls_first: bool = Field(False, description="Start with TLS, for a broker with handshake_first.")
    inbox_prefix: Prefix = option(
        "", "SUBJECT", "Prefix of inboxes, if the credential file does not name it."
    )
    api_prefix: Prefix = option(
        "",
        "SUBJECT",
        "Prefix of the JetStream API ($JS.hub.API), if the credential file does not name it.",
    )

    @property
    def access(self) -> Access:
        """The settings as the value that a connection takes."""
        given = {name: getattr(self, name) for name in ACCESS - {"server"}}
        texts = {n: s.get_secret_value() for n, s in given.items() if isinstance(s, SecretStr)}
        return Access(**{name: one for name, one in given.items() if one is not None} | texts)

    @property
    def broker_options(self) -> str:
        """The options with which another command asks this broker, quoted for a shell.

        Without secrets: they are in the --config file, or in the environment.
        """
        words = ["--config", str(self.config_file.absolute())] if self.config_file else []
        for name in sorted((ACCESS & self.given) - {"nkey_seed", "password", "tls_ca_pem"}):
            value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words += [flag] if value else []
            elif isinstance(value, tuple):
                words += [flag, ",".join(map(without_password, value))]
            else:
                words += [flag, str(value)]
        return shlex.join(words)


ACCESS = frozenset(AccessSettings.model_fields) - frozenset(ProgramSettings.model_fields)
"""The names of these settings, for commands that take only some settings."""
