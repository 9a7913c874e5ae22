"""The settings of a broker that exchanges lines with brokers of other sites."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from broker.address import OptionalListen
from broker.running.configuration import Many, ProgramSettings
from broker.settings_cluster import parse_route

__all__ = ["SITES_FIELDS", "SitesSettings"]

SITES_FIELDS = frozenset({"site", "site_listen", "site_remote", "site_nkey", "mirror", "source"})
"""The names of the settings below: those of `logbroker run` alone."""

_NAME = r"^[A-Za-z0-9_-]*$"


def _checked(remotes: tuple[str, ...]) -> tuple[str, ...]:
    for remote in remotes:
        parse_route(remote.replace("nats-leaf://", "nats-route://"))
    return remotes


def _named(sites: tuple[str, ...]) -> tuple[str, ...]:
    for site in sites:
        if not site or not site.replace("_", "a").replace("-", "a").isalnum() or not site.isascii():
            raise ValueError(f"{site!r} is no name of a site: letters, digits, '-' and '_'")
    return sites


class SitesSettings(ProgramSettings):
    """What makes this broker one of several sites; nothing of it counts without `site`."""

    site: Annotated[str, Field(pattern=_NAME)] = Field(
        "",
        description="Name of this site among others (its JetStream domain); no two may have the same.",
        json_schema_extra={"metavar": "NAME"},
    )
    site_listen: OptionalListen = Field(
        None,
        description="Where brokers of other sites connect, e.g. 0.0.0.0:7422; not at all by default.",
        json_schema_extra={"metavar": "HOST:PORT"},
    )
    site_remote: Annotated[Many, AfterValidator(_checked)] = Field(
        (),
        description="Where another site listens for this one, nats-leaf://host:7422; may be given several times.",
        json_schema_extra={"metavar": "URL"},
    )
    site_nkey: Path | None = Field(
        None,
        description="File with the seed that --site-remote knows this site by (`logbroker credentials add site`).",
        json_schema_extra={"metavar": "FILE"},
    )
    mirror: Annotated[str, Field(pattern=_NAME)] = Field(
        "",
        description=(
            "Hold a copy of that site's lines, same sequences and all, and take none of one's own; without it again, "
            "the copy becomes a stream that takes lines."
        ),
        json_schema_extra={"metavar": "SITE"},
    )
    source: Annotated[Many, AfterValidator(_named)] = Field(
        (),
        description="Take in the lines of another site beside one's own; may be given several times.",
        json_schema_extra={"metavar": "SITE"},
    )

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if not self.site:
            for name in sorted(SITES_FIELDS - {"site"}):
                if getattr(self, name):
                    raise ValueError(
                        f"--{name.replace('_', '-')} takes a --site, the name of this one"
                    )
        if self.mirror and self.source:
            raise ValueError(
                "--mirror and --source exclude each other: a copy takes in nothing else"
            )
        if self.site and self.site in (self.mirror, *self.source):
            raise ValueError(f"--mirror and --source name other sites, and this one is {self.site}")
        return self
