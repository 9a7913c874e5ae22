"""Asks whether a standalone Spark master is there, before a JVM is started for it: Spark itself says so after a minute."""

import queue
import socket
import threading
import time
from urllib.parse import urlsplit

from broker.app.exits import ConfigurationError, OperatorError

__all__ = ["check_masters"]

_SCHEME = "spark://"
_PATIENCE = 10.0  # seconds for names and connections, all masters at once


def check_masters(master: str, patience: float = _PATIENCE) -> None:
    """Return as soon as one of the masters of `spark://host:port,host:port` takes a connection; any other URL is not asked.

    Raises OperatorError saying why none does, `ConfigurationError` for what is no such address.
    """
    if not master.startswith(_SCHEME):
        return
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    addresses = [_address(part, master) for part in master.removeprefix(_SCHEME).split(",")]
    for host, port in addresses:
        # a name that is being looked up cannot be given up: whoever waits for it is left behind
        threading.Thread(target=_ask, args=(host, port, patience, answers), daemon=True).start()
    until = time.monotonic() + patience
    refusals = []
    for _ in addresses:
        try:
            refusal = answers.get(timeout=max(until - time.monotonic(), 0.0))
        except queue.Empty:
            refusals.append(f"no answer within {patience:g} s")
            break
        if not refusal:
            return
        refusals.append(refusal)
    raise OperatorError(
        f"no Spark master answers at {master}: {'; '.join(refusals)}; start it, or give another --master"
    )


def _address(part: str, master: str) -> tuple[str, int]:
    try:
        parsed = urlsplit(f"//{part}")
        host, port = parsed.hostname, parsed.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ConfigurationError(
            f"{master} is no address of a Spark master; give --master spark://host:port"
        )
    return host, port


def _ask(host: str, port: int, patience: float, answers: "queue.SimpleQueue[str]") -> None:
    try:
        socket.create_connection((host, port), patience).close()
    except OSError as error:
        answers.put(f"{host}:{port}: {error.strerror or error}")
    except UnicodeError:  # a name that no look-up takes
        answers.put(f"{host}:{port}: no name of a machine")
    else:
        answers.put("")
