"""What of nats-py's internals is relied on is listed, and is there."""

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
from broker.client.internals import RELIED_ON

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
