"""Expressions over blocks find the lines that they match one by one; levels are found alike."""

import re
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.wire.expressions import (
    bounded_expression,
    expression,
    expression_for_some_lines,
    matching_runs,
)
from nats_logship.wire.levels import LEVELS, find_level, level_runs
from receiver.table.level import find_levels, have_level

EXPRESSIONS = (
    *("error", "error|fail", "(?i)error|fail", "(?i:ERR)or|fa(i|x)l", "a|b|error|fail|x|y|fail2"),
    *("^a", "a$", "^$", "x*", r"\bfail\b", "[^a]", r"[|(]|fail", r"\|error", "(a|error) b", "a.b"),
)
texts = st.lists(
    st.sampled_from(["error", "fail", "FAIL", "Error", "a", "b", " ", "|", "(", "\r", "fail2", ""]),
    max_size=4,
).map("".join)


@given(
    lines=st.lists(texts, max_size=60),
    pattern=st.sampled_from(EXPRESSIONS),
    is_ended=st.booleans(),
    repeats=st.sampled_from([1, 1, 40]),
)
def test_a_block_has_the_matches_of_its_lines(
    lines: list[str], pattern: str, is_ended: bool, repeats: int
) -> None:
    block = "".join(f"{line}\n" for line in lines * repeats).encode()
    block = block if is_ended else block.removesuffix(b"\n")
    one = re.compile(pattern.encode(), re.NOFLAG)

    runs = matching_runs((expression(pattern),), block)

    found = b"".join(block[start:end] for start, end in runs)
    every = re.findall(rb"[^\n]*\n|[^\n]+\Z", block)  # `splitlines` also splits at \r
    assert found == b"".join(line for line in every if one.search(line.removesuffix(b"\n")))
    assert all(before[1] < after[0] for before, after in pairwise(runs))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", r"missing \), unterminated"),
        ("a(?!b)", "no lookarounds"),
        ("x" * 501, "longer than 500 characters"),
        ("a\0", "zero byte"),
        ("([a-bd-eg-hj-km-np-qs-t]{31}){32}", "too large"),
    ],
)
def test_an_expression_that_is_wrong_or_costly_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        bounded_expression(text)


@pytest.mark.parametrize("text", ["", "debug|", "x*", ".*", "^", "(a|)b?", "^(?:x|.*)$"])
def test_an_expression_that_chooses_every_line_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"so every line: write . instead of .*, or write .. for"):
        expression_for_some_lines(text)


@pytest.mark.parametrize("text", ["^$", r"^\s*$", "debug|^$", r"\d|^$", "^x*$", "^.{0,300}$", "."])
def test_an_expression_may_choose_empty_and_short_lines(text: str) -> None:
    assert expression_for_some_lines(text)


def test_an_expression_may_have_many_short_alternatives() -> None:
    assert expression_for_some_lines("|".join(f"GET /{number:x}/health" for number in range(999)))


@pytest.mark.parametrize("text", [r"(\w{1,30}\W?){1,30}#", "([a-h].{0,300}){3}#"])
def test_an_expression_that_would_slow_down_every_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is too large .* of at most 1000"):
        expression_for_some_lines(text)


@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [
                    *("ERROR", "[warn]", "level=info", '"severity": "Crit"', "INFO", "xERROR"),
                    *(
                        "[core:notice]",
                        "<11>",
                        "<192>",
                        " ",
                        "lvl:dbg",
                        "FATAL",
                        "x" * 80,
                        "ALERTED",
                        "=",
                        '{"msg":"FATAL"',
                        '"log.level" : "Warn"}',
                        '"level":50,',
                        '"levelname":"x"',
                        "é" * 2000,
                    ),
                ]
            ),
            max_size=5,
        ).map(" ".join),
        min_size=1,
        max_size=20,
    )
)
def test_blocks_and_tables_agree_on_the_levels_of_lines(lines: list[str]) -> None:
    levels = [find_level(line.encode()) for line in lines]

    assert [one or "" for one in find_levels(pa.array(lines)).to_pylist()] == levels
    block = "".join(f"{line}\n" for line in lines).encode()
    for least in LEVELS:
        runs = level_runs(least, block, 0, len(block))
        wanted = LEVELS[LEVELS.index(least) :]
        expected = [line for line, level in zip(lines, levels, strict=True) if level in wanted]
        found = b"".join(block[start:end] for start, end in runs).decode()
        kept = have_level(pa.array([line.encode() for line in lines]), least).to_pylist()
        assert kept == [level in wanted for level in levels]
        assert found == "".join(f"{line}\n" for line in expected)
