"""The settings of a broker that exchanges lines with brokers of other sites."""

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from broker.app.address import OptionalListen
from broker.app.configuration import Many, ProgramSettings
from broker.settings_cluster import parse_route

__all__ = ["SCHEME", "SITES_FIELDS", "SitesSettings"]

SITES_FIELDS = frozenset({"site", "site_listen", "site_remote", "site_nkey", "mirror", "source"})
"""The names of the settings below: those of `logbroker run` alone."""

_NAME = r"^[A-Za-z0-9_-]*$"


SCHEME = "nats-leaf://"
"""How an address of another site begins, if it says so."""


def _checked(remotes: tuple[str, ...]) -> tuple[str, ...]:
    for remote in remotes:
        try:
            parse_route(remote.removeprefix(SCHEME))
        except ValueError:
            raise ValueError(f"{remote!r} is not {SCHEME}host:port, without a password") from None
    return remotes


def _named(sites: tuple[str, ...]) -> tuple[str, ...]:
    for site in sites:
        if not site or not site.replace("_", "a").replace("-", "a").isalnum() or not site.isascii():
            raise ValueError(f"{site!r} is no name of a site: letters, digits, '-' and '_'")
    return sites


class SitesSettings(ProgramSettings):
    """What makes this broker one of several sites; nothing of it counts without `site`."""

    section: ClassVar[str] = "Other sites"

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
    mirror: Annotated[str, Field(pattern=_NAME)] | None = Field(
        None,
        description=(
            "Hold a copy of that site's lines, same sequences and all, and take none of one's own, until "
            "`logbroker promote`."
        ),
        json_schema_extra={"metavar": "SITE"},
    )
    source: Annotated[Many, AfterValidator(_named)] = Field(
        (),
        description="Take in the lines of another site beside one's own; may be given several times.",
        json_schema_extra={"metavar": "SITE"},
    )

    def contradiction(self) -> str:
        """Return what does not go together among these settings; empty when all does."""
        if not self.site:
            alone = [name for name in sorted(SITES_FIELDS - {"site"}) if getattr(self, name)]
            return (
                f"--{alone[0].replace('_', '-')} takes a --site, the name of this one"
                if alone
                else ""
            )
        if self.mirror and self.source:
            return "--mirror and --source exclude each other: a copy takes in nothing else"
        if self.site in (self.mirror, *self.source):
            return f"--mirror and --source name other sites, and this one is {self.site}"
        return ""
