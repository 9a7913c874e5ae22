"""TLS in the configuration of nats-server: what it shows, and what it asks of clients and of other brokers."""

from dataclasses import dataclass

from broker.server.quoting import quoted

__all__ = ["TlsConf", "client_section", "route_section"]


@dataclass(frozen=True, slots=True)
class TlsConf:
    """Paths of PEM files; `authorities` are those that clients' and other brokers' certificates are checked against."""

    certificate: str
    key: str
    authorities: str | None
    requires_certificates: bool = False
    """Whether every client must show a certificate beside its credential."""


def client_section(tls: TlsConf) -> list[str]:
    """Return the lines for the port of clients."""
    return _section(tls, ["verify: true"] if tls.requires_certificates else [])


def route_section(tls: TlsConf) -> list[str]:
    """Return the lines for a port of other brokers, which prove by certificates that they are of the same authority."""
    return _section(tls, ["verify: true"] if tls.authorities else [])


def _section(tls: TlsConf, demands: list[str]) -> list[str]:
    authorities = [f"ca_file: {quoted(tls.authorities)}"] if tls.authorities else []
    lines = [
        f"cert_file: {quoted(tls.certificate)}",
        f"key_file: {quoted(tls.key)}",
        *authorities,
        *demands,
        'min_version: "1.3"',
        "timeout: 5",
    ]
    return ["tls {", *(f"  {line}" for line in lines), "}"]
