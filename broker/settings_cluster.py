"""The settings of a broker that is one of several."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from broker.app.address import Address, Listen, parse_address
from broker.app.configuration import Many, ProgramSettings

__all__ = ["ClusterSettings", "parse_route"]

_SCHEMES = ("nats-route://", "nats://", "tls://")


def parse_route(text: str) -> Address:
    """Return where another server listens for its like; raises ValueError.

    A secret does not belong there: every process of the machine sees a command line.
    """
    address = text.strip()
    for scheme in _SCHEMES:
        address = address.removeprefix(scheme)
    if "@" in address:
        raise ValueError(
            f"{text.rpartition('@')[2]!r} comes with a password; leave it to --cluster-secret-file"
        )
    found = parse_address(address.rstrip("/"))
    if ":" not in address or not found.port:
        raise ValueError(f"{text!r} names no port; write nats-route://host:6222")
    return found


def _checked(routes: tuple[str, ...]) -> tuple[str, ...]:
    for route in routes:
        parse_route(route)
    return routes


class ClusterSettings(ProgramSettings):
    """What makes one of several servers of a broker; nothing of it counts without `cluster`."""

    section: ClassVar[str] = "Cluster"

    cluster: Annotated[str, Field(pattern=r"^[^\s.*>]*$")] = Field(
        "",
        description="Name of the cluster of brokers that this one is of; all of them say the same.",
        json_schema_extra={"metavar": "NAME"},
    )
    cluster_listen: Listen = Field(
        Address("127.0.0.1", 6222),
        description="Where the other servers of the cluster connect.",
        json_schema_extra={"metavar": "HOST:PORT"},
    )
    route: Annotated[Many, AfterValidator(_checked)] = Field(
        (),
        description=(
            "Where another server of the cluster listens, nats-route://host:6222; may be given several times, "
            "and may name this one too."
        ),
        json_schema_extra={"metavar": "URL"},
    )
    cluster_secret_file: Path | None = Field(
        None,
        description=(
            "File with the secret that the servers of the cluster share; without one --cluster-listen must be this "
            "machine's own."
        ),
        json_schema_extra={"metavar": "FILE"},
    )
