"""The settings that say where the broker is and how to get in there, the same for every program that connects to one."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, SecretStr

from nats_logship.app.configuration import Many, ProgramSettings, option
from nats_logship.client.access import Access, check_prefix, check_servers

_SEEN = "all processes see an option, so give it in the environment or the --config file"

File = Annotated[Path, AfterValidator(Path.absolute)]
"""The path of a file; absolute, as it goes to other processes as well."""


class AccessSettings(ProgramSettings):
    """Where the broker is, the settings of `Access`, and those of every program."""

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
        "Certificates that the broker's is checked against, by default those of the system. With "
        "this, any other option of TLS, or a tls:// address, nothing is sent unencrypted.",
    )
    tls_cert: File | None = option(None, "FILE", "Own certificate, for a broker that asks for one.")
    tls_key: File | None = option(
        None, "FILE", "Private key of --tls-cert, unless it stands in that file."
    )
    tls_ca_pem: str = option(
        "", "PEM", "The text of --tls-ca itself, for a --config file that holds all that it takes."
    )
    tls_first: bool = Field(
        False,
        description="Begin with TLS, for a broker with handshake_first; others say hello first.",
    )
    inbox_prefix: Annotated[str, AfterValidator(check_prefix)] = option(
        "", "SUBJECT", "Prefix of the subjects of answers, if no credential file says it."
    )
    api_prefix: Annotated[str, AfterValidator(check_prefix)] = option(
        "", "SUBJECT", "Prefix of the JetStream API ($JS.hub.API), if no credential file says it."
    )

    @property
    def access(self) -> Access:
        """Return the settings as the value that a connection takes."""
        given = {name: getattr(self, name) for name in ACCESS - {"server"}}
        secrets = {
            n: one.get_secret_value() for n, one in given.items() if isinstance(one, SecretStr)
        }
        return Access(**{name: one for name, one in given.items() if one is not None} | secrets)


ACCESS = frozenset(AccessSettings.model_fields) - frozenset(ProgramSettings.model_fields)
"""The names of the settings above, for commands that take some settings and not others."""
