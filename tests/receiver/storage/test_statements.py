"""Only the modules of the store know SQL; all others call methods that say what they do."""

import ast
import re
from pathlib import Path

from receiver.storage import database, store

STORE = {Path(module.__file__).resolve() for module in (database, store)}
ROOT = Path(store.__file__).resolve().parents[2]
PROGRAMS = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
STATEMENT = re.compile(
    r"\b(SELECT\s.+|DELETE\s+FROM\s|UPDATE\s+\w+\s+SET\s|INSERT\s.*\bINTO\s|PRAGMA\s)"
    r"|\w (=|<|>|>=|!=) \?|\bIN \(SELECT\b|\bNOT NULL\b",
    re.DOTALL,
)


def statements_in(path: Path) -> list[int]:
    """Return the lines of a module at which there is a text with a statement or a condition."""
    texts = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Constant)]
    return [
        one.lineno for one in texts if isinstance(one.value, str) and STATEMENT.search(one.value)
    ]


def test_no_module_but_those_of_the_store_has_sql() -> None:
    modules = [path for name in PROGRAMS for path in (ROOT / name).rglob("*.py")]
    found = {path: statements_in(path) for path in modules if path not in STORE}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_search_finds_the_sql_of_the_store() -> None:
    assert sum(len(statements_in(path)) for path in STORE) > 40
