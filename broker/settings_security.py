"""The settings of whom a broker is open to: anonymous clients, certificates, connection limits, and encryption at rest."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from broker.app.configuration import ProgramSettings
from broker.auth.accounts import AccountLimits

__all__ = ["SecuritySettings"]

_HOST_SUBSCRIPTIONS = 100  # a shipper has a handful
_RECEIVER_SUBSCRIPTIONS = 10_000  # and a receiver some for each partition
_MONITORS = AccountLimits(connections=1000, subscriptions=1000)
Connections = Annotated[int, Field(ge=1, le=2**31 - 1)]


class SecuritySettings(ProgramSettings):
    """Who may connect, and what is shown to clients; `logbroker tls init` needs no options of TLS."""

    section: ClassVar[str] = "Security"

    allow_anonymous: bool = Field(
        False,
        description="Listen beyond this machine without credentials: whoever reaches it may read and write all.",
    )
    encryption_key_file: Path | None = Field(
        None,
        description="File with the key that the store is encrypted with, at least 16 bytes; it stays needed for ever.",
        json_schema_extra={"metavar": "FILE"},
    )
    encryption_cipher: Literal["chacha20", "aes"] = Field(
        "chacha20",
        description="Cipher of a store that is new: chacha20, or aes, faster with many CPUs' instructions for it.",
        json_schema_extra={"file_only": True, "metavar": "chacha20|aes"},
    )
    server_cert: Path | None = Field(
        None,
        description=(
            "Certificate that the server shows, with what leads to its authority; default: DIR/tls/broker.pem, "
            "when `logbroker tls init` made it."
        ),
        json_schema_extra={"metavar": "FILE"},
    )
    server_key: Path | None = Field(
        None,
        description="Private key of --server-cert, unless it stands in that file.",
        json_schema_extra={"metavar": "FILE"},
    )
    client_ca: Path | None = Field(
        None,
        description=(
            "Authorities of the certificates that clients and other brokers show; default: DIR/tls/authority.pem."
        ),
        json_schema_extra={"metavar": "FILE"},
    )
    require_certificates: bool = Field(
        False,
        description="Let nobody in without a certificate, whatever else they show.",
    )
    host_connections: Connections = Field(
        50_000,
        description="Most connections of all hosts together; what is left of nats-server's 65536 is for others.",
        json_schema_extra={"file_only": True, "metavar": "N"},
    )
    receiver_connections: Connections = Field(
        10_000,
        description="Most connections of all receivers together; one has a few, and some for each of Spark's cores.",
        json_schema_extra={"file_only": True, "metavar": "N"},
    )

    @property
    def host_limits(self) -> AccountLimits:
        """What hosts may take."""
        return AccountLimits(self.host_connections, _HOST_SUBSCRIPTIONS)

    @property
    def receiver_limits(self) -> AccountLimits:
        """What receivers may take."""
        return AccountLimits(self.receiver_connections, _RECEIVER_SUBSCRIPTIONS)

    @property
    def monitor_limits(self) -> AccountLimits:
        """What monitors may take."""
        return _MONITORS
