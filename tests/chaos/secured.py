"""The credentials and certificates of a secured world, made by `logbroker` as operators do.

folder/host-<name>.toml, receiver-<name>.toml, admin-chaos.toml      what is carried to each program
folder/authority.pem                              verifies the brokers' certificates
"""

import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.auth.credentials import parse_store
from broker.server.store import wait_for_credentials
from nats_logship.app.exits import OperatorError
from nats_logship.app.files import write_atomic
from nats_logship.client.access import Access
from tests.chaos.networks import Machine
from tests.support.commands import CommandFailed, run_command

_ADMIN = "chaos"


@dataclass(frozen=True, slots=True)
class Keys:
    """Who gets in at the brokers of `stores`; commands change the first credential store."""

    folder: Path
    stores: tuple[Path, ...]
    urls: tuple[str, ...]
    changing: "threading.RLock" = field(default_factory=threading.RLock)
    """Held while somebody changes a credential store: an operator does one thing at a time."""

    @classmethod
    def made(
        cls,
        folder: Path,
        brokers: Sequence[tuple[Machine, Path]],
        hosts: Sequence[str],
        receivers: Sequence[str],
    ) -> "Keys":
        """Make certificates for brokers, given as machines and folders, and all credentials."""
        folder.mkdir(mode=0o700)
        stores = tuple(store for _, store in brokers)
        keys = cls(folder, stores, tuple(f"nats://{machine.client}" for machine, _ in brokers))
        for machine, store in brokers:
            names = ("--name", machine.client.host, "--name", machine.route.host)
            if store != stores[0]:  # of the first one's authority
                (store / "tls").mkdir(parents=True)
                for file in ("authority.pem", "authority.key"):
                    shutil.copy(stores[0] / "tls" / file, store / "tls")
            run_command("logbroker", "tls", "init", "--store-dir", store, *names)
        keys.authority.write_bytes((stores[0] / "tls" / "authority.pem").read_bytes())
        keys.add("admin", _ADMIN)
        keys.add("host", *hosts)
        keys.add("receiver", *receivers)
        return keys

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def admin(self) -> Path:
        return self.file("admin", _ADMIN)

    @property
    def access(self) -> Access:
        return Access(nkey=self.admin, tls_ca=self.authority)

    def file(self, kind: str, name: str) -> Path:
        return self.folder / f"{kind}-{name}.toml"

    def add(self, kind: str, *names: str) -> None:
        """Give credentials, and put them where `file` says; raises `CommandFailed`."""
        arguments = [word for url in self.urls for word in ("--server", url)]
        arguments += ["--partition", "all"] if kind == "receiver" else []
        into = ("--output", f"{self.folder}/", "--force", "--yes")
        with self.changing:
            run_command("logbroker", *_in(self.stores[0], "add", kind, *names, *into, *arguments))
            self._copy()

    def revoke(self, kind: str, *names: str) -> None:
        """Take credentials away; the files stay."""
        with self.changing:
            run_command("logbroker", *_in(self.stores[0], "revoke", kind, *names))
            self._copy()

    def _copy(self) -> None:
        text = (self.stores[0] / "credentials.json").read_bytes()
        for store in self.stores[1:]:
            try:
                write_atomic(store / "credentials.json", text)
                wait_for_credentials(store, parse_store(text.decode()).revision)
            except OperatorError as error:
                raise CommandFailed(1, str(error)) from None


def _in(store: Path, *arguments: str) -> list[str]:
    return ["credentials", *arguments, "--store-dir", str(store)]
