"""Finding lines: at once where the engine may walk over a whole run, and as line by line in every case."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.expression import Expression, linewise

PATTERNS = [
    "",
    "^",
    "^$",
    "a",
    "^a",
    "b$",
    "a b",
    r"\s",
    r"a\s*b",
    r"a\s*+$",
    r"\S+",
    r"[^a]b",
    r"^[^b]*$",
    r"\Wa",
    r"\D$",
    "(?i)A",
    "(?:a|b){2,3}",
    "(a+)+b",
    r"\bb\b",
    ".",
    "a.b",
    "x|^b",
    r"a\n",
    r"(?s)a.b",
    "(?s:a.b)",
    "(?-m:^b)",
    r"(?x) a \s b",
    "(?>a*)b",
    "(?P<x>a)(?P=x)",
    r"(a)?(?(1)\s|b)",
    r"(?<![^a])b",
    r"(?<=\s)b",
    r"a(?![^b])",
    r"a(?!.)",
    r"(?!a)\S",
    r"\Aa",
    r"b\Z",
    r"a(?!\s)",
    r"(?<!\s)b",
    r"a(?=$)",
    r"[\s\S]b",
    r"a\x0ab",
    "[a-z]+ [^ ]+",
    r"\B",
    "\r$",
    "é",
]


def line_by_line(pattern: str, run: bytes) -> list[bytes]:
    search = re.compile(pattern.encode()).search
    return [line for line in run.removesuffix(b"\n").split(b"\n") if search(line)]


def found(pattern: Expression, run: bytes) -> list[bytes]:
    return [run[begin:end].removesuffix(b"\n") for begin, end in pattern.lines(run)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_expression_is_found_in_every_short_run_as_in_each_line_by_itself(pattern: str) -> None:
    expression = Expression(pattern)
    runs = [bytes(run) for n in range(1, 6) for run in itertools.product(b"ab \n", repeat=n)]

    assert [run for run in runs if found(expression, run) != line_by_line(pattern, run)] == []


@given(
    st.sampled_from(PATTERNS),
    st.lists(st.sampled_from([b"\n", b"a", b"b", b" ", b"A", b"\r", b"\0", b"\xff", b"\xc3\xa9"])),
)
def test_an_expression_is_found_as_in_each_line_by_itself(pattern: str, parts: list[bytes]) -> None:
    run = b"".join(parts)

    assert found(Expression(pattern), run) == line_by_line(pattern, run)


@pytest.mark.parametrize("pattern", ["DEBUG", r"^\[debug\]", r'"GET [^"]*" 200 \d+', "(?i)a|b"])
def test_the_engine_walks_over_a_whole_run_for_an_ordinary_expression(pattern: str) -> None:
    assert linewise(pattern.encode()) is not None


def test_an_expression_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"'a\(' is not a regular expression: missing \)"):
        Expression("a(")
