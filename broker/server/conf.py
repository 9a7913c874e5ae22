"""The configuration of nats-server, rendered from values; never reads or writes a file.

nats-server (2.15.1) refuses a name that it does not know, at its start and at a reload. It reads JSON, all but
the escapes of control characters.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from broker.app.address import Address
from broker.auth.accounts import LOGS, Section
from broker.auth.store import EMPTY, CredentialStore
from broker.client.access import Access
from broker.settings import BrokerSettings
from broker.topology import Topology
from broker.wire.streams import MAX_PAYLOAD

KEY_VARIABLE = "LOGSHIP_STORE_KEY"
"""By which nats-server gets the key of its store: neither a file of ours nor a command line holds the key."""

_CLUSTER_USER = "logbroker"
_SITE_SUBJECTS = ["logs.>", "$KV.>", "logship.>", "_INBOX.>", "JS.>"]
"""Subjects that are this site's own affair in either direction: if they crossed, a line would be stored by its publisher and by
the copy of the stream."""

_DEFAULTS: Section = {
    # a line that takes a minute for a pull is slow and not dead; under TLS there is no second try
    "write_deadline": "60s",
    "write_timeout": "retry",
    "ping_interval": "20s",
    "ping_max": 2,
    "reconnect_error_reports": 60,  # attempts to reach other servers, one a second
    "lame_duck_duration": "30s",
}


@dataclass(frozen=True, slots=True)
class TlsConf:
    """Absolute paths of PEM files, `authorities` being those that others' certificates are checked against; logbroker's own `access`."""

    certificate: Path
    key: Path
    authorities: Path | None
    access: Access

    @property
    def files(self) -> tuple[Path, ...]:
        """Files whose change is a reason to read them again."""
        named = (self.certificate, self.key, self.authorities)
        return tuple(dict.fromkeys(filter(None, named)))


@dataclass(frozen=True, slots=True)
class ServerConf:
    """The resolved configuration of a broker: settings, and what goes with them; `max_store` is bytes.

    `own` is how logbroker itself connects. `http_path` is where the monitoring answers: a
    secret where not everybody on this machine may see it. The key of a store that is encrypted is in the environment (KEY_VARIABLE).
    """

    settings: BrokerSettings
    folder: Path
    max_store: int
    accounts: Section = field(default_factory=dict)
    tls: TlsConf | None = None
    http_path: str = field(default="", repr=False)
    cluster_secret: str = field(default="", repr=False)
    site_seed: str = field(default="", repr=False)
    topology: Topology = field(default_factory=Topology)
    credentials: CredentialStore = EMPTY
    own: Access = field(default_factory=Access)


def own_name(settings: BrokerSettings) -> str:
    """Return the name of the server."""
    return settings.server_name or platform.node().replace(".", "-") or "logbroker"


def render(conf: ServerConf) -> str:
    """Return the text of the configuration file."""
    # clients are told to go elsewhere; where there is nowhere to go, waiting helps nobody
    grace = {"lame_duck_grace_period": "1s" if conf.settings.cluster else "100ms"}
    text = quoted({**_DEFAULTS, **grace, **conf.settings.nats, **_decided(conf)})
    # a variable is no string; as a piece of configuration it may be one (`quoted`)
    text = text.replace(f'"key": "${KEY_VARIABLE}"', f'"key": ${KEY_VARIABLE}')
    return f"# written by logbroker at every start: change its settings, not this file\n{text}\n"


def decided_here(conf: ServerConf) -> list[str]:
    """Return the names among the operator's settings of nats-server that logbroker decides."""
    return sorted({*map(str.lower, conf.settings.nats)} & {*_decided(conf), "host", "net", "port"})


def quoted(value: object) -> str:
    """Return a value as nats-server reads it, as JSON; of a mapping what is not None."""
    return json.dumps(_without_none(value), indent=1, ensure_ascii=False, default=str)


def _without_none(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_none(one) for one in value]
    return value


def _decided(conf: ServerConf) -> dict[str, Any]:
    """Return what an operator cannot set."""
    settings, is_encrypted = conf.settings, conf.settings.encryption_key_file is not None
    return {
        "server_name": own_name(settings),
        "listen": _bindable(settings.listen),
        "http": _bindable(settings.http),
        "http_base_path": conf.http_path or None if settings.http else None,
        "logtime": False,
        "max_payload": MAX_PAYLOAD,
        "feature_flags": {"js_ack_fc_v2": False},  # nats-py cannot read these acknowledgements yet
        "jetstream": {
            "store_dir": str(conf.folder),
            "max_file_store": conf.max_store,
            "max_memory_store": 64 * 1024**2,  # for consumers that are kept in memory
            "domain": settings.site or None,
            "sync_interval": "always",  # acknowledged means on disk
            "cipher": "chachapoly" if is_encrypted else None,
            "key": f"${KEY_VARIABLE}" if is_encrypted else None,
            "limits": {
                "max_request_batch": 10_000,
                "default_max_consumers": -1,  # one per partition, and one per shipper that starts
            },
        },
        "tls": _tls(conf.tls, verify=False) if conf.tls else None,
        "cluster": _cluster(conf) if settings.cluster else None,
        "leafnodes": _sites(conf),
        **conf.accounts,
    }


def _bindable(address: Address | None) -> str | None:
    # nats-server takes 0 as its default port, and -1 as any free one
    return None if address is None else str(Address(address.host, address.port or -1))


def _tls(tls: TlsConf, *, verify: bool) -> Section:
    return {
        "cert_file": tls.certificate,
        "key_file": tls.key,
        "ca_file": tls.authorities,
        "min_version": "1.3",
        "timeout": 5,
        "verify": verify or None,
    }


def _cluster(conf: ServerConf) -> Section:
    """Return the section.

    Servers look for each other every second: what is sent on to one that has gone without a word is lost until they notice, and
    then they tell clients how many of them they still know (in `connect_urls`), who go elsewhere by it.
    """
    settings, tls, secret = conf.settings, conf.tls, conf.cluster_secret
    shown = {"user": _CLUSTER_USER, "password": secret, "timeout": 3}
    credentials = f"{_CLUSTER_USER}:{quote(secret, safe='')}@" if secret else ""
    return {
        "name": settings.cluster,
        "listen": _bindable(settings.cluster_listen),
        "authorization": shown if secret else None,
        "routes": [f"nats-route://{credentials}{route}" for route in settings.route],
        "compression": {"mode": "s2_auto"},  # only where they are far from each other
        "ping_interval": "1s",
        "ping_max": 3,
        "write_deadline": "10s",
        # without authorities anybody's certificate would do
        "tls": _tls(tls, verify=True) if tls and tls.authorities else None,
    }


def _sites(conf: ServerConf) -> Section | None:
    """Return the section of leaf nodes, over which nothing goes but copies of streams; None where there are no other sites."""
    settings, tls = conf.settings, conf.tls
    if settings.site_listen is None and not settings.site_remote:
        return None
    secured = _tls(tls, verify=bool(tls.authorities)) if tls else None
    listening = {
        "listen": _bindable(settings.site_listen),
        "authorization": None if conf.credentials.secured else {"account": LOGS},
        "tls": secured,
    }
    remotes = [
        {
            "url": f"{'tls' if tls else 'nats-leaf'}://{remote}",
            "account": LOGS,
            "nkey": conf.site_seed or None,
            "deny_imports": _SITE_SUBJECTS,
            "deny_exports": _SITE_SUBJECTS,
            "tls": secured,
        }
        for remote in settings.site_remote
    ]
    return {**(listening if settings.site_listen else {}), "remotes": remotes or None}
