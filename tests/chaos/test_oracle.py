"""The judge counts each kind of harm under its own name, and nothing else; here, as most journeys hang on it."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.oracle import Verdict, judge, judge_host

Damage = Callable[[list[bytes], int], None]


def source(tag: str, count: int) -> list[bytes]:
    return [f"{tag} {n:06d} GET /item/{n * 7919 % 1009} 200\n".encode() for n in range(count)]


def drop(lines: list[bytes], at: int) -> None:
    del lines[at]


def repeat(lines: list[bytes], at: int) -> None:
    lines.insert(at + 1, lines[at])


def move(lines: list[bytes], at: int) -> None:
    lines.insert(at + 2, lines.pop(at))


def tear(lines: list[bytes], at: int) -> None:
    lines[at] = lines[at][: len(lines[at]) // 2] + b"\n"


def alter(lines: list[bytes], at: int) -> None:
    middle = len(lines[at]) // 2
    lines[at] = lines[at][:middle] + b"\x01" + lines[at][middle + 1 :]


def add(lines: list[bytes], at: int) -> None:
    lines.insert(at, b"~~~~~~~ nobody wrote me: %d\n" % at)


DAMAGES: dict[Damage, tuple[str, ...]] = {
    drop: ("missing",),
    repeat: ("repeated",),
    move: ("reordered",),
    tear: ("missing", "torn"),
    alter: ("missing", "foreign"),
    add: ("foreign",),
}


def counts(verdict: Verdict) -> dict[str, int]:
    kinds = ("missing", "repeated", "reordered", "torn", "foreign")
    return {kind: count for kind in kinds if (count := getattr(verdict, kind))}


@settings(max_examples=150, deadline=None)
@given(
    damages=st.lists(st.sampled_from([*DAMAGES]), max_size=12),
    sources=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_one_of_many_damages_is_counted_under_its_own_name(
    damages: list[Damage], sources: int, seed: int
) -> None:
    chance = random.Random(seed)
    written = [source(f"file{n}", 400) for n in range(sources)]
    damaged = [lines.copy() for lines in written]
    # far enough apart not to touch each other
    places = chance.sample(range(5, 395, 15), len(damages))

    for damage, at in sorted(zip(damages, places, strict=True), key=lambda pair: -pair[1]):
        damage(chance.choice(damaged), at)
    verdict = judge([b"".join(lines) for lines in written], interleave(damaged, chance))

    assert counts(verdict) == Counter(kind for damage in damages for kind in DAMAGES[damage])
    assert verdict.bytes_equal == verdict.is_perfect == (not damages)


def interleave(files: list[list[bytes]], chance: random.Random) -> bytes:
    rest = [lines.copy() for lines in files]
    result = []
    while any(rest):
        lines = chance.choice([lines for lines in rest if lines])
        run = chance.randrange(1, 9)
        result += lines[:run]
        del lines[:run]
    return b"".join(result)


LINES = source("a", 100)
HARMS: tuple[tuple[list[bytes], dict[str, int]], ...] = (
    ([], {"missing": 100}),
    (LINES[:60] + LINES[40:], {"repeated": 20}),
    (LINES[50:] + LINES[:50], {"reordered": 50}),
    ([*LINES[:5], LINES[5][:-1], *LINES[6:]], {"missing": 2, "torn": 1}),  # run together
    ([*LINES[:9], LINES[9][:11], *LINES[9:]], {"missing": 1, "torn": 1}),  # half, then whole
    ([*LINES[:-1], LINES[-1][:-1]], {"missing": 1, "torn": 1}),  # no newline at the end
)


@pytest.mark.parametrize(("received", "found"), HARMS)
def test_harm_has_its_name(received: list[bytes], found: dict[str, int]) -> None:
    verdict = judge([b"".join(LINES)], b"".join(received))

    assert counts(verdict) == found
    assert not verdict.bytes_equal


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([b"x\n", b"y\n", b"\n"]), max_size=40), st.data())
def test_lines_that_are_all_alike_are_judged_too(lines: list[bytes], data: st.DataObject) -> None:
    received = [line for line in lines if data.draw(st.booleans())]

    verdict = judge([b"".join(lines)], b"".join(received))

    assert verdict.missing == len(lines) - len(received)
    assert verdict.repeated == verdict.reordered == 0


def test_a_line_that_two_files_share_is_judged_by_its_count() -> None:
    written = [b"a1\n\na2\n", b"b1\n\nb2\n"]

    assert judge(written, b"a1\nb1\n\n\nb2\na2\n").is_perfect
    assert judge(written, b"a1\nb1\n\nb2\na2\n").missing == 1
    assert judge(written, b"a1\nb1\n\n\n\nb2\na2\n").repeated == 1


def test_a_torn_line_is_judged_where_blank_lines_were_written() -> None:
    verdict = judge([b"a line\n\nanother\n"], b"a line\n\nanothe#\n")

    assert counts(verdict) == {"missing": 1, "foreign": 1}


def test_received_is_read_from_closed_segments_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    (tmp_path / "web01.log.000002.zst").write_bytes(zstandard.compress(b"two\n"))
    (tmp_path / "web01.log.000010").write_bytes(b"three\n")
    (tmp_path / "web01.log.000001").write_bytes(b"one\n")
    (tmp_path / "web01.log").write_bytes(b"four\n")
    (tmp_path / "web01.log.x").write_bytes(b"not a segment\n")
    (tmp_path / "web01.log.de.log").write_bytes(b"another host\n")
    written = tmp_path / "app.log"
    written.write_bytes(b"one\ntwo\nthree\nfour\n")

    assert judge_host([written], tmp_path, "web01").is_perfect
    (tmp_path / "web01.log.000002").write_bytes(b"two\n")
    with pytest.raises(ValueError, match="segment 2 of web01 is there twice"):
        judge_host([written], tmp_path, "web01")


@pytest.mark.parametrize(
    ("received", "complete", "perfect"),
    [
        pytest.param(b"a\nb\nc\n", True, True, id="equal"),
        pytest.param(b"b\nc\na\n", True, False, id="in another order"),
        pytest.param(b"a\nb\nb\n", False, False, id="with one for another"),
        pytest.param(b"a\nb\nc", False, False, id="without its last newline"),
    ],
)
@pytest.mark.parametrize("to_be_named", [0, 100], ids=["too much to name", "little"])
def test_lines_are_judged_whether_they_fit_into_memory_or_not(
    tmp_path: Path, received: bytes, complete: bool, perfect: bool, to_be_named: int
) -> None:
    written = tmp_path / "app.log"
    written.write_bytes(b"a\nb\nc\n")
    (tmp_path / "web01.log").write_bytes(received)

    verdict = judge_host([written], tmp_path, "web01", to_be_named)

    assert (verdict.is_complete, verdict.is_perfect) == (complete, perfect)
