"""What a broker's settings make of it among others: the value of its cluster, with the secret that they share."""

from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.server.conf_cluster import ClusterConf
from broker.settings import BrokerSettings
from broker.settings_cluster import parse_route

__all__ = ["cluster_of"]

_LEAST_SECRET = 16  # characters


def cluster_of(settings: BrokerSettings, tls: tuple[str, ...] = ()) -> ClusterConf | None:
    """Return what nats-server is to be told of its cluster, None for a broker that is alone.

    `tls` are the lines of a tls section for the lines between servers. Raises `ConfigurationError` for what would leave the
    cluster open to everybody, or the broker alone in it.
    """
    if not settings.cluster:
        if settings.route:
            raise ConfigurationError(
                "--route without --cluster: say the name of the cluster as well"
            )
        return None
    if not settings.route:
        raise ConfigurationError(
            f"--cluster {settings.cluster} without --route: name the other servers, e.g. --route nats-route://broker2:6222"
        )
    secret = _secret(settings.cluster_secret_file)
    if not secret and not settings.cluster_listen.is_loopback:
        raise ConfigurationError(
            f"--cluster-listen {settings.cluster_listen} is open to the network, and whoever connects there reads and writes "
            "all lines: give all servers the same --cluster-secret-file, e.g. made by `openssl rand -hex 32`"
        )
    routes = tuple(parse_route(route) for route in settings.route)
    return ClusterConf(settings.cluster, settings.cluster_listen, routes, secret, tls)


def _secret(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"--cluster-secret-file {path}: {getattr(error, 'strerror', None) or 'is no text'}"
        ) from None
    if len(secret) < _LEAST_SECRET or not secret.isprintable():
        raise ConfigurationError(
            f"--cluster-secret-file {path}: holds no secret of {_LEAST_SECRET} or more characters on one line; "
            "make one by `openssl rand -hex 32`"
        )
    if path.stat().st_mode & 0o007:
        raise ConfigurationError(
            f"--cluster-secret-file {path}: everybody of this machine may read it; `chmod 600 {path}`"
        )
    return secret
