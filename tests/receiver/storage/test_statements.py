"""Only the store's module knows SQL; all others call methods that are named by what they do."""

import ast
import re
from pathlib import Path

from receiver.storage import store

STORE = Path(store.__file__).resolve()
RECEIVER = STORE.parents[1]
STATEMENT = re.compile(
    r"\b(SELECT\s.+|DELETE\s+FROM\s|UPDATE\s+\w+\s+SET\s|INSERT\s.*\bINTO\s|PRAGMA\s)", re.DOTALL
)


def statements_in(path: Path) -> list[int]:
    """Return the lines of a module at which there is a text with a statement of SQL."""
    texts = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Constant)]
    return [
        one.lineno for one in texts if isinstance(one.value, str) and STATEMENT.search(one.value)
    ]


def test_no_module_but_the_stores_has_a_statement_of_sql() -> None:
    modules = [path for path in RECEIVER.rglob("*.py") if path != STORE]
    found = {path.relative_to(RECEIVER).as_posix(): statements_in(path) for path in modules}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_search_finds_the_statements_of_the_store() -> None:
    assert len(statements_in(STORE)) > 20
