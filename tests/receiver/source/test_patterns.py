"""Patterns of subjects against the plain meaning of `*` and `>`. No fixtures."""

import itertools

import pytest

from receiver.source.patterns import is_pattern, meet, partition_in

TOKENS = ("a", "b", "*", ">")
PATTERNS = [
    ".".join(tokens)
    for length in (1, 2, 3)
    for tokens in itertools.product(TOKENS, repeat=length)
    if ">" not in tokens[:-1]
]
SUBJECTS = [
    ".".join(tokens)
    for length in (1, 2, 3, 4)
    for tokens in itertools.product("abc", repeat=length)
]


def takes_in(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        ours in ("*", theirs) for ours, theirs in zip(wanted, tokens, strict=True)
    )


def test_where_two_patterns_meet_is_what_both_take_in() -> None:
    for one, other in itertools.product(PATTERNS, repeat=2):
        met = meet(one, other)

        both = {s for s in SUBJECTS if takes_in(one, s) and takes_in(other, s)}
        assert {s for s in SUBJECTS if met and takes_in(met, s)} == both, (one, other, met)


@pytest.mark.parametrize("text", ["", ".", "a..b", "a b", "a.>.b", ">.a", "a.\t", "a\n"])
def test_what_no_server_takes_is_no_pattern(text: str) -> None:
    assert not is_pattern(text)


def test_a_partition_is_known_by_its_pattern() -> None:
    assert partition_in("logs.p12.>") == 12
    assert [partition_in(p) for p in ("logs.p01.>", "logs.*.>", "logs.p1.web", "x.p1.>")] == [
        None,
        None,
        None,
        None,
    ]
