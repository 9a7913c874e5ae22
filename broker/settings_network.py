"""The settings of a broker that is one of several: a server of a cluster, or a site that exchanges lines with other sites."""

import re
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from broker.app.address import Address, Listen, OptionalListen, parse_address
from broker.app.configuration import Many, ProgramSettings

__all__ = ["SITE_SCHEME", "ClusterSettings", "SitesSettings", "parse_route"]

SITE_SCHEME = "nats-leaf://"
"""How an address of another site may begin."""

_SCHEMES = ("nats-route://", "nats://", "tls://")
_SITE_NAME = r"^[A-Za-z0-9_-]*$"
_OF_A_SITE = ("mirror", "site_listen", "site_nkey", "site_remote", "source")


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


def _routes(routes: tuple[str, ...]) -> tuple[str, ...]:
    for route in routes:
        parse_route(route)
    return routes


def _remotes(remotes: tuple[str, ...]) -> tuple[str, ...]:
    for remote in remotes:
        try:
            parse_route(remote.removeprefix(SITE_SCHEME))
        except ValueError:
            raise ValueError(
                f"{remote!r} is not {SITE_SCHEME}host:port, without a password"
            ) from None
    return remotes


def _sources(sites: tuple[str, ...]) -> tuple[str, ...]:
    for site in sites:
        if not site or not re.match(_SITE_NAME, site):
            raise ValueError(f"{site!r} is no name of a site: letters, digits, '-' and '_'")
    return sites


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
    route: Annotated[Many, AfterValidator(_routes)] = Field(
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


class SitesSettings(ProgramSettings):
    """What makes this broker one of several sites; nothing of it counts without `site`."""

    section: ClassVar[str] = "Other sites"

    site: Annotated[str, Field(pattern=_SITE_NAME)] = Field(
        "",
        description="Name of this site among others (its JetStream domain); no two may have the same.",
        json_schema_extra={"metavar": "NAME"},
    )
    site_listen: OptionalListen = Field(
        None,
        description="Where brokers of other sites connect, e.g. 0.0.0.0:7422; not at all by default.",
        json_schema_extra={"metavar": "HOST:PORT"},
    )
    site_remote: Annotated[Many, AfterValidator(_remotes)] = Field(
        (),
        description="Where another site listens for this one, nats-leaf://host:7422; may be given several times.",
        json_schema_extra={"metavar": "URL"},
    )
    site_nkey: Path | None = Field(
        None,
        description="File with the seed that --site-remote knows this site by (`logbroker credentials add site`).",
        json_schema_extra={"metavar": "FILE"},
    )
    mirror: Annotated[str, Field(pattern=_SITE_NAME)] | None = Field(
        None,
        description=(
            "Hold a copy of that site's lines, same sequences and all, and take none of one's own, until "
            "`logbroker promote`."
        ),
        json_schema_extra={"metavar": "SITE"},
    )
    source: Annotated[Many, AfterValidator(_sources)] = Field(
        (),
        description="Take in the lines of another site beside one's own; may be given several times.",
        json_schema_extra={"metavar": "SITE"},
    )

    def contradiction(self) -> str:
        """Return what does not go together among these settings; empty when all does."""
        if not self.site:
            alone = next((name for name in _OF_A_SITE if getattr(self, name)), "")
            option = alone.replace("_", "-")
            return f"--{option} takes a --site, the name of this one" if alone else ""
        if self.mirror and self.source:
            return "--mirror and --source exclude each other: a copy takes in nothing else"
        if self.site in (self.mirror, *self.source):
            return f"--mirror and --source name other sites, and this one is {self.site}"
        return ""
