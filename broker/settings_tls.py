"""The settings of TLS at the broker, for those who have certificates of their own; `logbroker tls init` needs none."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from broker.app.configuration import ProgramSettings

__all__ = ["TlsSettings"]


class TlsSettings(ProgramSettings):
    """What the server shows and asks for."""

    section: ClassVar[str] = "TLS"

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
