"""What of nats-py's inside is relied on, in one place: whoever raises its version in pyproject.toml reads these first.

Beside them, `nats.aio.client.DEFAULT_BUFFER_SIZE` is set (client.py), and the parser is given whole lines (receiving.py).
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nats.aio.client
import nats.aio.subscription
import nats.aio.transport
import nats.protocol.parser

import broker

RELIED_ON = {
    # overridden: nats-py calls them
    "_build_message": "takes a subject that is not UTF-8",
    "_connect_command": "sends nothing in the clear where TLS is wanted; its last word before CONNECT",
    "_connect_to_server": "puts our line under it",
    "_parse_header_lines": "at a third of the cost",
    "_ping_interval": "gives up a line that moves no more, rather than one that is slow",
    "_process_headers": "takes headers that are not ASCII",
    "_process_info": "begins with TLS where the server only allows it; counts the servers of a cluster",
    "_process_op_err": "ends a dead line without sending first; called as well, by the pinging",
    "_process_pong": "survives the answer to a flush that was given up",
    "_remove_sub": "forgets what was tapped",
    "_send_ping": "pings behind what waits to be sent; called as well, by the pinging",
    "_send_publish": "sends large messages uncopied",
    # called
    "_process_msg": "hands on what is not tapped",
    # read or set
    "_id": "the number of a subscription, by which messages are told apart",
    "_pending": "what waits to be sent",
    "_pending_data_size": "its bytes",
    "_pings_outstanding": "which a PONG sets to 0",
    "_pongs": "who waits for a PONG",
    "_ps": "the parser, for which ours is put",
    "_public_nkey": "for a key that nats-py does not hold",
    "_transport": "the line",
}
THEIRS = (
    nats.aio.client,
    nats.aio.subscription,
    nats.aio.transport,
    nats.protocol.parser,
)
ROOT = Path(broker.__file__).parents[1]
OWN = {"_client", "_start", "_status"}  # by chance called as some of theirs


def private(text: str) -> Iterator[str]:
    """Yield the names with an underscore that a module defines, reads or sets of an object."""
    for node in ast.walk(ast.parse(text)):
        name = getattr(node, "attr", None) or getattr(node, "name", None)
        if isinstance(name, str) and name.startswith("_") and not name.startswith("__"):
            yield name


def of(module: ModuleType) -> set[str]:
    return set(private(inspect.getsource(module)))


def test_all_that_is_relied_on_of_nats_py_is_listed_and_there() -> None:
    theirs = set().union(*map(of, THEIRS))
    used = {
        name
        for package in ("broker", "shipper", "receiver", "pyspark_jetstream")
        for path in (ROOT / package).rglob("*.py")
        if uses_nats_py(path)
        for name in private(path.read_text("utf-8"))
    }

    assert (used & theirs) - OWN == RELIED_ON.keys()


def uses_nats_py(path: Path) -> bool:
    """Whether a module holds an object of nats-py's itself, rather than one of our connections."""
    return any(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nats.")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
