"""How a broker is connected with brokers of other sites, by its settings. Reads the seed; changes nothing."""

from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.client.nkey import InvalidSeed, seed_of
from broker.server.conf_sites import SitesConf
from broker.server.conf_tls import TlsConf, route_section
from broker.settings_cluster import parse_route
from broker.settings_sites import SCHEME, SitesSettings

__all__ = ["sites_of"]


def sites_of(settings: SitesSettings, tls: TlsConf | None, *, is_open: bool) -> SitesConf | None:
    """Return what nats-server is told of other sites, None where there are none; `is_open` without credentials.

    Raises `ConfigurationError` for settings that do not go together, and for a seed that cannot be read.
    """
    if reason := settings.contradiction():
        raise ConfigurationError(reason)
    if not settings.site:
        return None
    if settings.site_listen and is_open and not settings.site_listen.is_loopback:
        raise ConfigurationError(
            f"--site-listen {settings.site_listen} would let any site in: add a credential for each first, "
            "with `logbroker credentials add site NAME`"
        )
    return SitesConf(
        settings.site,
        settings.site_listen,
        tuple(parse_route(remote.removeprefix(SCHEME)) for remote in settings.site_remote),
        _seed(settings.site_nkey) if settings.site_nkey else "",
        is_open,
        tuple(route_section(tls)) if tls else (),
    )


def _seed(path: Path) -> str:
    try:
        return seed_of(path.read_text("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise ConfigurationError(f"cannot read {path}: {reason}; check --site-nkey") from None
    except InvalidSeed as error:
        raise ConfigurationError(f"{path} {error}; check --site-nkey") from None
