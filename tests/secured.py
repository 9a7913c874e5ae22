"""A real nats-server with the accounts and rights that logbroker grants."""

import asyncio
import hashlib
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from broker.auth.accounts import BuiltinKeys, build_accounts
from broker.auth.credentials import Credential, CredentialKind
from broker.auth.permissions import API
from broker.server.nats_conf import render
from broker.server.requests import ConsumerRequests
from broker.topology import Topology
from nats_logship.client.access import Access
from nats_logship.client.connection import Connection
from nats_logship.client.nkey import new_seed, user_key
from nats_logship.wire.streams import stream_names
from nats_logship.wire.subjects import make_inbox
from tests.conftest import apply_topology
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import start_nats_server

OWN = "logbroker"
SITE = "centre"
"""The name of the server's site."""
NOW = datetime(2026, 11, 21, tzinfo=UTC)


class Secured(NamedTuple):
    """A running server, its log included; every name has itself as its password."""

    port: int
    leaf_port: int
    """Where servers of other sites connect."""
    process: Process
    conf: Path
    limited: frozenset[str]
    """The names of hosts, receivers and monitors, as credential files name inbox and API."""

    def url(self, name: str = OWN) -> str:
        return f"nats://{name}:{name}@127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def access(self, name: str) -> Access:
        if name not in self.limited:
            return Access(user=name, password=name)
        return Access(user=name, password=name, inbox_prefix=make_inbox(name), api_prefix=API)

    def options(self, name: str) -> list[str]:
        """Return the options by which a program comes as one whose rights are limited."""
        arguments = [*("--server", self.url(name)), *("--inbox-prefix", make_inbox(name))]
        return [*arguments, *("--api-prefix", API)]

    def read_log(self) -> str:
        return self.process.log.read_text("utf-8") if self.process.log.exists() else ""


def key_of(name: str) -> str:
    return user_key(new_seed(hashlib.sha256(name.encode()).digest())).public


def _credential(kind: CredentialKind, name: str, *partitions: int) -> Credential:
    return Credential(kind=kind, name=name, nkey=key_of(name), since=NOW, partitions=partitions)


host = partial(_credential, CredentialKind.HOST)
receiver = partial(_credential, CredentialKind.RECEIVER)
admin = partial(_credential, CredentialKind.ADMIN)
site = partial(_credential, CredentialKind.SITE)
monitor = partial(_credential, CredentialKind.MONITOR)


def start_secured(
    processes: Processes, folder: Path, *credentials: Credential, streams: int = 1
) -> Secured:
    """Start a server for these credentials, with two partitions, each in its stream if several."""
    port, leaf_port, path = free_port(), free_port(), folder / "secured.conf"
    write_conf(path, port, *credentials, streams=streams, leaf_port=leaf_port)
    limited = frozenset(one.name for one in credentials if one.kind is not CredentialKind.ADMIN)
    process = start_nats_server(processes, f"secured-{port}", path)
    server = Secured(port, leaf_port, process, path, limited)
    apply_topology(server.url(), Topology(partitions=2, stream_count=streams))
    arguments = [sys.executable, "-m", __name__, server.url(), *stream_names(streams)]
    beside = processes.start(f"beside-{port}", arguments, folder=Path(__file__).parents[1])
    wait_until("it listens", lambda: "listens" in beside.read_log(), 60, [beside])
    return server


def _take(url: str, *names: str) -> None:
    """Make consumers, as `logbroker run` does, for clients that may not make them themselves."""

    async def take() -> None:
        requests = ConsumerRequests(Connection([url], "logbroker"), SITE, names)
        running = asyncio.ensure_future(requests.run())
        await requests.listens.wait()
        print("listens", flush=True)  # noqa: T201 - its starter waits for it
        await running

    asyncio.run(take())


def write_conf(
    path: Path, port: int, *credentials: Credential, streams: int = 1, leaf_port: int = 0
) -> None:
    """Write the configuration of a server that admits these and itself; SIGHUP reads it again."""
    accounts = build_accounts(
        credentials, BuiltinKeys(key_of(OWN)), stream_count=streams, site=SITE
    )
    rendered = render(accounts)[1:-1]
    leaves = f'leafnodes {{ listen: "127.0.0.1:{leaf_port}" }}' if leaf_port else ""
    for name in (OWN, *(one.name for one in credentials)):
        # the rights are what is tested here, and a password is what an address can hold
        rendered = rendered.replace(
            f'"nkey": "{key_of(name)}"', f'"user": "{name}", "password": "{name}"'
        )
    path.write_text(
        f'listen: "127.0.0.1:{port}"\nmax_payload: 8MB\n'
        f'jetstream {{ store_dir: "{path.parent}/secured-store", sync_interval: always, '
        f"domain: {SITE} }}\n"
        f"feature_flags {{ js_ack_fc_v2: false }}\n{leaves}\n{rendered}\n",
        "utf-8",
    )


if __name__ == "__main__":
    _take(*sys.argv[1:])
