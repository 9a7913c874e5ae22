"""The error codes of nats-server: one table, which the whole suite uses."""

import ast
from pathlib import Path

import pytest

from nats_logship.client import error_codes
from nats_logship.client.error_codes import ErrorCode

TREE = Path(__file__).parents[3]
TABLE = Path(error_codes.__file__).resolve()
PACKAGES = ("broker", "nats_logship", "pyspark_jetstream", "receiver", "shipper")


def codes_in(path: Path) -> list[str]:
    """Return the error codes that a module writes as numbers, as `line: number`."""
    return [
        f"{node.lineno}: {node.value}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and type(node.value) is int
        if 10_000 < node.value < 11_000
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_but_the_table_writes_an_error_code(package):
    modules = [path for path in (TREE / package).rglob("*.py") if path != TABLE]
    assert modules
    found = {str(path.relative_to(TREE)): codes_in(path) for path in modules}
    assert {path: codes for path, codes in found.items() if codes} == {}


def test_the_table_itself_holds_the_codes_that_the_search_finds():
    assert len(codes_in(TABLE)) == len(ErrorCode)
