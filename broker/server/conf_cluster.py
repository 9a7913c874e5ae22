"""The cluster section of nats-server's configuration, rendered from a value; never reads or writes a file."""

from dataclasses import dataclass, field
from urllib.parse import quote

from broker.app.address import Address
from broker.server.quoting import quoted

__all__ = ["ClusterConf", "render_cluster"]

_USER = "logbroker"


@dataclass(frozen=True, slots=True)
class ClusterConf:
    """What a server is told of its cluster: the name of it, where it listens for the others, and where they are.

    `routes` may name the server itself, so that all servers can be given one list. `secret` is what they tell each
    other first, empty where whoever gets through is trusted; `tls` are the lines of a tls section.
    """

    name: str
    listen: Address
    routes: tuple[Address, ...]
    secret: str = field(default="", repr=False)
    tls: tuple[str, ...] = ()


def render_cluster(conf: ClusterConf) -> list[str]:
    """Return the lines of the section.

    Servers look for each other every second: what is sent on to one that has gone without a word is lost until they
    notice, and then they tell clients how many of them they still know (in `connect_urls`), who go elsewhere by it.
    """
    secret = quoted(conf.secret)
    credentials = f"{_USER}:{quote(conf.secret, safe='')}@" if conf.secret else ""
    listen = Address(conf.listen.host, conf.listen.port or -1)
    return [
        "cluster {",
        f"  name: {quoted(conf.name)}",
        f"  listen: {quoted(str(listen))}",
        *(
            [f"  authorization {{ user: {_USER}, password: {secret}, timeout: 3 }}"]
            if conf.secret
            else []
        ),
        "  routes: [",
        *(f"    {quoted(f'nats-route://{credentials}{route}')}" for route in conf.routes),
        "  ]",
        "  compression: { mode: s2_auto }  # only where they are far from each other",
        '  ping_interval: "1s"',
        "  ping_max: 3",
        '  write_deadline: "10s"',
        *(f"  {line}" for line in conf.tls),
        "}",
    ]
