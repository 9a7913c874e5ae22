"""Whether a store may be run as settings say: one that was alone stays alone, a member of a cluster stays that member.

A server of a cluster removes, after half a minute, every stream of its store that the cluster has not made (2.15.1); one
alone would let its copy go its own way. And whoever comes back under another name is a fourth server, with the third one
missing for ever.
"""

import json
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.app.folder import read_file
from broker.app.whole import write_whole

__all__ = ["check_membership", "remember_membership"]

_FILE = "cluster.json"
_VERSION = 1


def check_membership(folder: Path, cluster: str, name: str) -> None:
    """Return when the store in `folder` may be run in `cluster` (empty: alone) by a server called `name`.

    Raises `ConfigurationError` with the way round; nothing is changed.
    """
    data = folder / "jetstream"
    is_member = any(data.glob("*/_js_/_meta_"))
    if cluster and not is_member and any(data.glob("*/streams/*")):
        raise ConfigurationError(
            f"the store {folder} has streams of a broker that was alone, which a cluster would remove: take a `logbroker "
            "backup` of it while it runs alone, start the cluster with empty stores, and `logbroker restore` it there"
        )
    if not cluster and is_member:
        raise ConfigurationError(
            f"the store {folder} is of a server of a cluster: give its --cluster, --route and --server-name, or another "
            "--store-dir"
        )
    before = _name_in(folder)
    if cluster and is_member and before and before != name:
        raise ConfigurationError(
            f"the store {folder} is that of server {before}: give --server-name {before}, or an empty store to a new server"
        )


def remember_membership(folder: Path, cluster: str, name: str) -> None:
    """Keep by which name the server of a cluster is known there; raises `OperatorError`."""
    if cluster:
        content = {"version": _VERSION, "cluster": cluster, "server_name": name}
        write_whole(folder / _FILE, json.dumps(content, indent=2) + "\n")


def _name_in(folder: Path) -> str:
    try:
        content = json.loads(read_file(folder / _FILE))
    except (OSError, ValueError):
        return ""  # that's fine: it only guards against a mistake
    return str(content.get("server_name", "")) if isinstance(content, dict) else ""
