"""What a running broker says of itself in its folder, for other programs of this machine: `broker.json`."""

import json
from dataclasses import dataclass
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.whole import write_whole
from broker.auth.accounts import Admission
from broker.auth.store_file import load_credentials
from broker.server.conf import ServerConf
from broker.server.neighbour import READY, account_of
from broker.server.process import this_process
from broker.server.server import Ports

__all__ = ["Refusal", "refusal_of", "unready", "write_ready"]

_MODE = 0o600  # it tells the secret path of the monitoring


@dataclass(frozen=True, slots=True)
class Refusal:
    """A credential store that was not taken over: its revision, if that could be read, and why."""

    revision: int | None
    reason: str


def refusal_of(folder: Path, error: OperatorError) -> Refusal:
    """Return what to say of the credential store in a folder that was not taken over."""
    try:
        return Refusal(load_credentials(folder).revision, str(error))
    except OperatorError:
        return Refusal(None, str(error))


def write_ready(
    conf: ServerConf, ports: Ports, pid: int, admission: Admission, refusal: Refusal | None
) -> None:
    """Say that clients are served, and by which credentials; `pid` is that of nats-server."""
    http = conf.http.reached_at(ports.http) if conf.http and ports.http else None
    scheme = "tls" if conf.tls else "nats"
    us = this_process()
    content = {
        "server": f"{scheme}://{conf.listen.reached_at(ports.client)}",
        "http": f"http://{http}{conf.http_path}" if http else None,
        "store_dir": conf.folder,
        "pid": us.pid,
        "began": us.began,
        "nats_server_pid": pid,
        "credentials": account_of(
            admission.revision,
            admission.secured,
            refusal.revision if refusal else None,
            refusal.reason if refusal else "",
        ),
    }
    write_whole(Path(conf.folder) / READY, json.dumps(content, indent=2) + "\n", _MODE)


def unready(folder: Path) -> None:
    """Say so no longer."""
    (folder / READY).unlink(missing_ok=True)
