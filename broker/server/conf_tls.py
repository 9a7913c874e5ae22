"""TLS in the configuration of nats-server: what it shows, and what it asks of clients and of other brokers."""

from dataclasses import dataclass
from enum import Enum

from broker.server.quoting import quoted

__all__ = ["Clients", "TlsConf", "client_section", "route_section"]


class Clients(Enum):
    """What a client must show beside its credentials."""

    ANY = "any"
    CERTIFIED = "certified"
    MAPPED = "mapped"
    """A certificate, and the name in it says who the client is."""


@dataclass(frozen=True, slots=True)
class TlsConf:
    """Paths of PEM files; `authorities` are those that clients' and other brokers' certificates are checked against."""

    certificate: str
    key: str
    authorities: str | None
    clients: Clients = Clients.ANY


def client_section(tls: TlsConf) -> list[str]:
    """Return the lines for the port of clients."""
    demands = {
        Clients.ANY: [],
        Clients.CERTIFIED: ["verify: true"],
        Clients.MAPPED: ["verify_and_map: true"],
    }
    return _section(tls, demands[tls.clients])


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
