"""Finding lines: at once where the engine may walk over a whole run, and as line by line in every case."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.expression import Expression, confined

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


@given(
    st.sampled_from(PATTERNS),
    st.lists(st.sampled_from([b"\n", b"a", b"b", b" ", b"A", b"\r", b"\0", b"\xff", b"\xc3\xa9"])),
)
def test_an_expression_is_found_as_in_each_line_by_itself(pattern: str, parts: list[bytes]) -> None:
    run = b"".join(parts)
    lines = run.removesuffix(b"\n").split(b"\n")
    search = re.compile(pattern.encode()).search

    found = [run[begin:end].removesuffix(b"\n") for begin, end in Expression(pattern).lines(run)]

    assert found == [line for line in lines if search(line)]


@pytest.mark.parametrize("pattern", ["DEBUG", r"^\[debug\]", r'"GET [^"]*" 200 \d+', "(?i)a|b"])
def test_the_engine_walks_over_a_whole_run_for_an_ordinary_expression(pattern: str) -> None:
    assert confined(pattern.encode()) is not None


def test_an_expression_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"'a\(' is not a regular expression: missing \)"):
        Expression("a(")
