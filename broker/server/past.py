"""What a life of nats-server knows of those before it. Decides only."""

from dataclasses import dataclass, replace

from broker.app.address import Address
from broker.server.conf import ServerConf
from broker.server.health import Healing
from broker.server.server import Ports

__all__ = ["Past", "at_ports"]


@dataclass(frozen=True, slots=True)
class Past:
    """The lives before this one: how many, where the last one listened, and those begun for the sake of a full disk."""

    lives: int = 0
    ports: Ports | None = None
    healing: Healing = Healing()  # noqa: RUF009 - a frozen value


def at_ports(conf: ServerConf, before: Ports | None) -> ServerConf:
    """Return the configuration of another life: free ports that the system chose `before` stay the same."""
    if before is None:
        return conf
    listen, http = conf.listen, conf.http
    if not listen.port:
        listen = Address(listen.host, before.client)
    if http is not None and not http.port and before.http:
        http = Address(http.host, before.http)
    return replace(conf, listen=listen, http=http)
