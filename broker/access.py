"""How a program gets in at the broker: who it says it is, and how the line is secured. Values and settings.

Opens no file and never shows a secret: what the files hold is read by `credentials`, at each connect.
"""

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field, SecretStr

from broker.configuration import ProgramSettings

__all__ = ["ACCESS", "Access", "AccessSettings"]

ACCESS = frozenset(
    {"creds", "nkey", "user", "password", "tls_ca", "tls_cert", "tls_key", "tls_first"}
)
"""The names of the settings below, for commands that take some settings and not others."""


@dataclass(frozen=True, slots=True)
class Access:
    """The means of getting in: at most one of `creds`, `nkey` and `user`; paths of files, none of them read yet."""

    creds: Path | None = None
    nkey: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_first: bool = False

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be sent in the clear, whatever the scheme of the address."""
        return self.tls_first or any((self.tls_ca, self.tls_cert, self.tls_key))

    def __str__(self) -> str:
        """Name what we come with, for messages to a person; never a secret."""
        if self.creds:
            return f"the credentials of {self.creds} (--creds)"
        if self.nkey:
            return f"the key of {self.nkey} (--nkey)"
        if self.user:
            return f"user {self.user!r} (--user, --password)"
        if self.tls_cert:
            return f"the certificate {self.tls_cert} (--tls-cert)"
        return "a client without --creds, --nkey or --user"


class AccessSettings(ProgramSettings):
    """The settings that say how to get in at the broker, the same for every program that connects to one."""

    creds: Path | None = Field(
        None,
        description="Credentials file of a NATS user: JWT and seed.",
        json_schema_extra={"metavar": "FILE"},
    )
    nkey: Path | None = Field(
        None,
        description="File that holds the seed of an nkey user.",
        json_schema_extra={"metavar": "FILE"},
    )
    user: str = Field(
        "", description="Name of a user with a password.", json_schema_extra={"metavar": "NAME"}
    )
    password: SecretStr | None = Field(
        None,
        description=(
            "Password of --user; all processes see an option, so give it in the environment or the "
            "--config file."
        ),
    )
    tls_ca: Path | None = Field(
        None,
        description=(
            "Certificates that the broker's is checked against, by default those of the system; like "
            "every option of TLS, and a tls:// address, it forbids to talk in the clear."
        ),
        json_schema_extra={"metavar": "FILE"},
    )
    tls_cert: Path | None = Field(
        None,
        description="Own certificate, for a broker that asks for one.",
        json_schema_extra={"metavar": "FILE"},
    )
    tls_key: Path | None = Field(
        None,
        description="Private key of --tls-cert, unless it stands in that file.",
        json_schema_extra={"metavar": "FILE"},
    )
    tls_first: bool = Field(
        False,
        description="Begin with TLS, for a broker with handshake_first; others say hello first.",
    )

    @property
    def access(self) -> Access:
        """Return the settings as the value that a connection takes."""
        return Access(
            creds=self.creds,
            nkey=self.nkey,
            user=self.user,
            password=self.password.get_secret_value() if self.password else "",
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_first=self.tls_first,
        )
