"""What nats-server is told of other sites: leaf nodes, over which nothing goes but copies of streams.

The stream's subjects must not cross, or a line would be stored at both ends by its publisher and once more by the copy.
"""

from dataclasses import dataclass, field

from broker.app.address import Address
from broker.server.quoting import quoted

__all__ = ["KEPT_HERE", "SitesConf", "render_sites"]

KEPT_HERE = ("logs.>", "$KV.>", "logship.>", "_INBOX.>", "JS.>")
"""Subjects that are this site's own affair, in either direction."""

_ACCOUNT = "LOGS"


@dataclass(frozen=True, slots=True)
class SitesConf:
    """The name of this site, where brokers of others connect, where this one does, and the seed that it shows there.

    `is_open`: whoever gets through to the port may come in, as there are no credentials. `tls` are the lines of a tls
    section, for both directions; none for lines in the clear.
    """

    name: str
    listen: Address | None = None
    remotes: tuple[Address, ...] = ()
    seed: str = field(default="", repr=False)
    is_open: bool = False
    tls: tuple[str, ...] = ()


def render_sites(conf: SitesConf) -> list[str]:
    """Return the lines of the section; none where there are no other sites."""
    if conf.listen is None and not conf.remotes:
        return []
    remotes = [f"    {line}" for remote in conf.remotes for line in _remote(remote, conf)]
    return [
        "leafnodes {",
        *(f"  {line}" for line in _listening(conf)),
        *(["  remotes: [", *remotes, "  ]"] if remotes else []),
        "}",
    ]


def _listening(conf: SitesConf) -> list[str]:
    if conf.listen is None:
        return []
    listen = Address(conf.listen.host, conf.listen.port or -1)
    door = [f"authorization {{ account: {_ACCOUNT} }}"] if conf.is_open else []
    return [f"listen: {quoted(str(listen))}", *door, *conf.tls]


def _remote(remote: Address, conf: SitesConf) -> list[str]:
    kept = ", ".join(map(quoted, KEPT_HERE))
    scheme = "tls" if conf.tls else "nats-leaf"
    return [
        "{",
        f"  url: {quoted(f'{scheme}://{remote}')}",
        f"  account: {_ACCOUNT}",
        *([f"  nkey: {quoted(conf.seed)}"] if conf.seed else []),
        f"  deny_imports: [{kept}]",
        f"  deny_exports: [{kept}]",
        *(f"  {line}" for line in conf.tls),
        "}",
    ]
