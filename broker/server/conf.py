"""The configuration of nats-server, rendered from values; never reads or writes a file.

nats-server (2.15.1) refuses a name that it does not know, at its start and at a reload. It reads JSON, all but
the escapes of control characters.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from broker.app.address import Address
from broker.auth.accounts import SYS, Account, Accounts, Crossing, CrossingKind, User
from broker.auth.permissions import API
from broker.wire.streams import MAX_PAYLOAD

__all__ = [
    "KEY_VARIABLE",
    "ClusterConf",
    "ServerConf",
    "SitesConf",
    "TlsConf",
    "decided_here",
    "quoted",
    "render",
    "render_accounts",
]

Section = Mapping[str, Any]
"""Settings by name; what is None is left out."""

KEY_VARIABLE = "LOGSHIP_STORE_KEY"
"""By which nats-server gets the key of its store: neither a file of ours nor a command line holds the key."""

_ESCAPE = re.compile(r"\\(?:u00(?P<code>..)|(?P<letter>.))")
_ESCAPES_OF_JSON = {"b": "\\x08", "f": "\\x0c"}
_FORGOTTEN = "60s"
"""How long a question with several answers is remembered without one: longer than any pull waits."""

_SPARE_MEMORY = 64 * 1024**2  # bytes, for consumers that are kept in memory
_CLUSTER_USER = "logbroker"
_SITES_ACCOUNT = "LOGS"
_SITE_SUBJECTS = ["logs.>", "$KV.>", "logship.>", "_INBOX.>", "JS.>"]
"""Subjects that are this site's own affair in either direction: if they crossed, a line would be stored by its publisher and by
the copy of the stream."""

_SYNONYMS = re.compile(
    "host|net|port|addr|https|https?_port|monitor_port|store_?dir|authorization|operators?|resolver|roots|account_resolver|"
    "resolver_preload|trusted|trusted_keys|system|no_sys_acc|no_system_account|allow_non_tls|log_?file|syslog|remote_syslog|"
    "accounts|no_auth_user|system_account|tls|cluster|leafnodes|gateway|include"
)
"""Names by which nats-server takes what logbroker decides, though it may not write them."""


@dataclass(frozen=True, slots=True)
class TlsConf:
    """Paths of PEM files; `authorities` are those that clients' and other brokers' certificates are checked against."""

    certificate: str
    key: str
    authorities: str | None
    requires_certificates: bool = False


@dataclass(frozen=True, slots=True)
class ClusterConf:
    """The cluster of a server: its name, where the server listens for the others, and where they are.

    `routes` may name the server itself, so that all servers can be given one list. `secret` is what servers tell each other first,
    empty where whoever gets through is trusted.
    """

    name: str
    listen: Address
    routes: tuple[Address, ...]
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SitesConf:
    """The name of this site, where brokers of others connect, where this one connects, and the seed that it shows there.

    `is_open`: whoever gets through to the port may come in, as there are no credentials.
    """

    name: str
    listen: Address | None = None
    remotes: tuple[Address, ...] = ()
    seed: str = field(default="", repr=False)
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class ServerConf:
    """What the configuration of a server is made of; `folder` is absolute, `max_store` is bytes.

    `http_path` is where the monitoring answers at `http`: a secret where not everybody on this machine may see it. `own` is what
    the operator sets of nats-server. `cipher` is nats-server's name of one; the key is in the environment (KEY_VARIABLE).
    """

    name: str
    listen: Address
    http: Address | None
    folder: str
    max_store: int
    cluster: ClusterConf | None = None
    accounts: Accounts | None = None
    tls: TlsConf | None = None
    sites: SitesConf | None = None
    cipher: str | None = None
    own: Section = field(default_factory=dict)
    http_path: str = field(default="", repr=False)

    def at(self, client: int, http: int | None) -> "ServerConf":
        """Return the same at these ports, where the configuration leaves them to the system."""
        listen = self.listen if self.listen.port else Address(self.listen.host, client)
        at_http = self.http
        if at_http is not None and not at_http.port and http:
            at_http = Address(at_http.host, http)
        return replace(self, listen=listen, http=at_http)


def render(conf: ServerConf) -> str:
    """Return the text of the configuration file."""
    text = _text(
        {
            **_defaults(conf),
            **conf.own,
            **_fixed(conf),
            "tls": _tls(conf.tls, verify=conf.tls.requires_certificates) if conf.tls else None,
            **(_accounts(conf.accounts) if conf.accounts else {}),
            "cluster": _cluster(conf.cluster, conf.tls) if conf.cluster else None,
            "leafnodes": _sites(conf.sites, conf.tls) if conf.sites else None,
        }
    )
    # a variable is no string; as a piece of configuration it may be one (`quoted`)
    text = text.replace(f'"key": "${KEY_VARIABLE}"', f'"key": ${KEY_VARIABLE}')
    return f"# written by logbroker at every start: change its settings, not this file\n{text}\n"


def render_accounts(accounts: Accounts) -> str:
    """Return the lines of the accounts alone."""
    return _text(_accounts(accounts))[1:-1].strip()


def quoted(text: str) -> str:
    """Return a text as a string of the configuration, whatever is in it."""
    return _text(text)


def _text(value: object) -> str:
    written = json.dumps(_without_none(value), indent=1, ensure_ascii=False, default=str)
    return _ESCAPE.sub(_escape, written)


def _escape(found: re.Match[str]) -> str:
    """Return an escape of JSON as nats-server knows it."""
    if found["code"]:
        return f"\\x{found['code']}"
    return _ESCAPES_OF_JSON.get(found["letter"], found[0])


def _without_none(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_none(one) for one in value]
    return value


def decided_here(conf: ServerConf) -> list[str]:
    """Return the names among the operator's settings of nats-server that logbroker decides."""
    fixed = _fixed(conf)
    return sorted(n for n in conf.own if n.lower() in fixed or _SYNONYMS.fullmatch(n.lower()))


def _defaults(conf: ServerConf) -> dict[str, Any]:
    return {
        # a line that takes a minute for a pull is slow and not dead; under TLS there is no second try
        "write_deadline": "60s",
        "write_timeout": "retry",
        "ping_interval": "20s",
        "ping_max": 2,
        "reconnect_error_reports": 60,  # attempts to reach other servers, one a second
        # clients are told to go elsewhere; where there is nowhere to go, waiting helps nobody
        "lame_duck_grace_period": "1s" if conf.cluster else "100ms",
        "lame_duck_duration": "30s",
    }


def _fixed(conf: ServerConf) -> dict[str, Any]:
    return {
        "server_name": conf.name,
        "listen": _bindable(conf.listen),
        "http": _bindable(conf.http),
        "http_base_path": conf.http_path or None if conf.http else None,
        "logtime": False,
        "max_payload": MAX_PAYLOAD,
        "feature_flags": {"js_ack_fc_v2": False},  # nats-py cannot read these acknowledgements yet
        "jetstream": {
            "store_dir": conf.folder,
            "max_file_store": conf.max_store,
            "max_memory_store": _SPARE_MEMORY,
            "domain": conf.sites.name if conf.sites else None,
            "sync_interval": "always",  # acknowledged means on disk
            "cipher": conf.cipher,
            "key": f"${KEY_VARIABLE}" if conf.cipher else None,
            "limits": {
                "max_request_batch": 10_000,
                "default_max_consumers": -1,  # one per partition, and one per shipper that starts
            },
        },
    }


def _tls(tls: TlsConf, *, verify: bool) -> Section:
    return {
        "cert_file": tls.certificate,
        "key_file": tls.key,
        "ca_file": tls.authorities,
        "min_version": "1.3",
        "timeout": 5,
        "verify": verify or None,
    }


def _broker_tls(tls: TlsConf) -> Section:
    """Return the section for a port of other brokers, which prove by certificates that they are of the same authority."""
    return _tls(tls, verify=bool(tls.authorities))


def _cluster(conf: ClusterConf, tls: TlsConf | None) -> Section:
    """Return the section.

    Servers look for each other every second: what is sent on to one that has gone without a word is lost until they notice, and
    then they tell clients how many of them they still know (in `connect_urls`), who go elsewhere by it.
    """
    secret = {"user": _CLUSTER_USER, "password": conf.secret, "timeout": 3}
    credentials = f"{_CLUSTER_USER}:{quote(conf.secret, safe='')}@" if conf.secret else ""
    return {
        "name": conf.name,
        "listen": _bindable(conf.listen),
        "authorization": secret if conf.secret else None,
        "routes": [f"nats-route://{credentials}{route}" for route in conf.routes],
        "compression": {"mode": "s2_auto"},  # only where they are far from each other
        "ping_interval": "1s",
        "ping_max": 3,
        "write_deadline": "10s",
        # without authorities anybody's certificate would do
        "tls": _broker_tls(tls) if tls and tls.authorities else None,
    }


def _sites(conf: SitesConf, tls: TlsConf | None) -> Section | None:
    """Return the section of leaf nodes, over which nothing goes but copies of streams; None where there are no other sites."""
    if conf.listen is None and not conf.remotes:
        return None
    listening = {
        "listen": _bindable(conf.listen),
        "authorization": {"account": _SITES_ACCOUNT} if conf.is_open else None,
        "tls": _broker_tls(tls) if tls else None,
    }
    remotes = [_remote(remote, conf, tls) for remote in conf.remotes]
    return {**(listening if conf.listen else {}), "remotes": remotes or None}


def _remote(remote: Address, conf: SitesConf, tls: TlsConf | None) -> Section:
    return {
        "url": f"{'tls' if tls else 'nats-leaf'}://{remote}",
        "account": _SITES_ACCOUNT,
        "nkey": conf.seed or None,
        "deny_imports": _SITE_SUBJECTS,
        "deny_exports": _SITE_SUBJECTS,
        "tls": _broker_tls(tls) if tls else None,
    }


def _bindable(address: Address | None) -> str | None:
    # nats-server takes 0 as its default port, and -1 as any free one
    return None if address is None else str(Address(address.host, address.port or -1))


def _accounts(accounts: Accounts) -> Section:
    """Return the accounts, the system account, and who comes in without a proof."""
    return {
        "system_account": SYS,
        "no_auth_user": accounts.anybody or None,
        "accounts": {one.name: _account(one, accounts.crossings) for one in accounts.accounts},
    }


def _account(account: Account, crossings: Sequence[Crossing]) -> Section:
    limits, name = account.limits, account.name
    return {
        "jetstream": "enabled" if account.has_jetstream else None,
        # whoever has a credential names the API so, also at a broker that is open yet
        "mappings": {f"{API}.>": "$JS.API.>"} if account.has_jetstream else None,
        "limits": limits
        and {"max_connections": limits.connections, "max_subscriptions": limits.subscriptions},
        "exports": _exports([one for one in crossings if one.of == name]) or None,
        "imports": [_import(one) for one in crossings if one.into == name] or None,
        "users": [_user(user) for user in account.users] or None,
    }


def _exports(crossings: Sequence[Crossing]) -> list[Section]:
    found: dict[str, dict[str, Any]] = {}
    for one in crossings:
        has_several = one.traffic is CrossingKind.QUESTIONS
        several = {"response_type": "stream", "threshold": _FORGOTTEN} if has_several else {}
        export = found.setdefault(one.subject, {_kind(one): one.subject, **several, "accounts": []})
        export["accounts"].append(one.into)
    return list(found.values())


def _import(crossing: Crossing) -> Section:
    return {
        _kind(crossing): {"account": crossing.of, "subject": crossing.subject},
        "to": crossing.local if crossing.local != crossing.subject else None,
    }


def _kind(crossing: Crossing) -> str:
    return "stream" if crossing.traffic is CrossingKind.MESSAGES else "service"


def _user(user: User) -> Section:
    """Return a user; whoever has rights of its own is no other site."""
    rights = user.permissions
    kinds = ["LEAFNODE"] if user.is_server else ["STANDARD"] if rights else None
    return {
        "nkey": user.nkey,
        "allowed_connection_types": kinds,
        "permissions": rights
        and {
            "publish": {"allow": rights.publish},
            "subscribe": {"allow": rights.subscribe},
            "allow_responses": True if rights.responds else None,
        },
    }
