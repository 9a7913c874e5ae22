"""What a life of nats-server is given: read from settings, book, certificates and disk, all at one moment.

Reads; changes nothing.
"""

import logging
import platform
from dataclasses import dataclass, replace
from datetime import datetime

from broker.app.exits import ConfigurationError
from broker.app.sizes import format_size
from broker.auth.accounts import Admission
from broker.client.access import Access
from broker.server.binary import find
from broker.server.clustering import cluster_of
from broker.server.conf import ServerConf, render, store_limit, stream_limit
from broker.server.conf_tls import route_section
from broker.server.door import Door
from broker.server.own import included
from broker.server.securing import Security, security_of
from broker.server.siting import sites_of
from broker.server.store import Space
from broker.settings import BrokerSettings
from broker.topology import Topology

__all__ = ["Outfit", "own_name", "put_together"]

_SPARE_MEMORY = 64 * 1024**2  # bytes, for consumers that are kept in memory
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outfit:
    """The settings that count, and what they come to; `own` is how logbroker itself gets in."""

    settings: BrokerSettings
    conf: ServerConf
    topology: Topology
    admission: Admission
    security: Security
    own: Access

    def takes_restart_after(self, before: "Outfit") -> bool:
        """Whether a nats-server that is `before` must be started again to be this: some things it takes at a start only."""
        is_opened = bool(self.admission.accounts.anybody and not before.admission.accounts.anybody)
        return (
            is_opened
            or self.own != before.own
            or self.conf.max_store != before.conf.max_store
            or (self.conf.http is not None and self.conf.http_path != before.conf.http_path)
        )


def put_together(settings: BrokerSettings, door: Door, space: Space, now: datetime) -> Outfit:
    """Return what the server is to be; raises `ConfigurationError` for what does not go together."""
    admission = door.look(settings, now)
    _refuse_strangers(settings, admission)
    security = security_of(settings, door.folder)
    between = route_section(security.tls) if security.tls and security.tls.authorities else []
    limit = _limit(settings, space)
    conf = ServerConf(
        name=own_name(settings),
        listen=settings.listen,
        http=settings.http,
        folder=str(door.folder),
        # a limit below what a stream was promised earlier makes the server refuse every change of that stream, the one
        # to a smaller promise included; so it is at least that, and the stream's own limit follows the disk
        max_store=max(limit, space.promised),
        cluster=cluster_of(settings, tuple(between)),
        accounts=admission.accounts,
        tls=security.tls,
        max_memory=_memory(settings),
        sites=sites_of(settings, security.tls, is_open=bool(admission.accounts.anybody)),
        http_path=door.monitoring if admission.secured else "",
    )
    if settings.nats_config is not None:
        binary = find(settings.nats_server)
        conf = replace(conf, own=included(binary, settings.nats_config, door.folder, render(conf)))
    own = replace(security.own, nkey_seed=door.own.nkey_seed)
    room = _memory(settings) if settings.storage == "memory" else limit
    return Outfit(settings, conf, _topology(settings, room), admission, security, own)


def _refuse_strangers(settings: BrokerSettings, admission: Admission) -> None:
    """Let nobody in from other machines by accident: that takes credentials, or a word of the operator's."""
    if settings.allow_anonymous:
        return
    if not admission.secured and not settings.listen.is_loopback:
        raise ConfigurationError(
            f"--listen {settings.listen} reaches beyond this machine, and there are no credentials; add some with "
            f"`logbroker credentials add admin NAME --store-dir {settings.store_dir}`, "
            "or give --allow-anonymous in a closed network"
        )
    if settings.http is not None and not settings.http.is_loopback:
        raise ConfigurationError(
            f"--http {settings.http} tells names of hosts to whoever asks, as it knows no credentials; keep it on "
            "127.0.0.1, or give --allow-anonymous in a closed network"
        )


def own_name(settings: BrokerSettings) -> str:
    """Return the name of the server."""
    return settings.server_name or platform.node().replace(".", "-") or "logbroker"


def _limit(settings: BrokerSettings, space: Space) -> int:
    if settings.max_store is not None:
        return int(settings.max_store)
    reserve = None if settings.reserve is None else int(settings.reserve)
    return store_limit(space.free, space.held, space.total, reserve)


def _memory(settings: BrokerSettings) -> int:
    """Return what streams in memory may take: half of it all, as nats-server has to live beside them."""
    return int(settings.memory) // 2 if settings.storage == "memory" else _SPARE_MEMORY


def _topology(settings: BrokerSettings, limit: int) -> Topology:
    asked = None if settings.max_bytes is None else int(settings.max_bytes)
    bound = stream_limit(limit, settings.partitions, asked)
    if asked is not None and bound < asked:
        logger.warning(
            "the stream gets %s instead of --max-bytes %s: the store has no room for more",
            format_size(bound),
            format_size(asked),
        )
    return replace(settings.topology(), room=bound)
