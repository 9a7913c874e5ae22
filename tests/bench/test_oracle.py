import random
import time
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


DAMAGES = {
    "missing": drop,
    "repeated": repeat,
    "reordered": move,
    "torn": tear,
    "altered": alter,
    "foreign": add,
}


def counts(verdict: Verdict) -> dict[str, int]:
    return {name: getattr(verdict, name) for name in DAMAGES}


def test_an_equal_copy_is_perfect() -> None:
    lines = source("a", 50)

    verdict = judge([b"".join(lines)], b"".join(lines))

    assert verdict == Verdict(50, 50)
    assert verdict.is_perfect


def test_nothing_written_and_nothing_received_is_perfect() -> None:
    assert judge([b""], b"").is_perfect


def test_nothing_received_is_all_missing() -> None:
    verdict = judge([b"".join(source("a", 9))], b"")

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"missing": 9}
    assert not verdict.bytes_equal


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_counted_under_its_own_name_alone(name: str) -> None:
    lines = source("a", 30)
    received = lines.copy()

    DAMAGES[name](received, 12)
    verdict = judge([b"".join(lines)], b"".join(received))

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {name: 1}
    assert not verdict.bytes_equal


@settings(max_examples=150, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(DAMAGES)), max_size=12),
    sources=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_one_of_many_damages_is_counted_under_its_own_name(
    names: list[str], sources: int, seed: int
) -> None:
    chance = random.Random(seed)
    written = [source(f"file{n}", 400) for n in range(sources)]
    damaged = [lines.copy() for lines in written]
    # far enough apart not to touch each other
    places = chance.sample(range(5, 395, 15), len(names))

    for name, at in sorted(zip(names, places, strict=True), key=lambda pair: -pair[1]):
        DAMAGES[name](chance.choice(damaged), at)
    verdict = judge([b"".join(lines) for lines in written], interleave(damaged, chance))

    assert counts(verdict) == {name: names.count(name) for name in DAMAGES}
    assert verdict.bytes_equal == (not names)
    assert verdict.is_perfect == (not names)


def interleave(files: list[list[bytes]], chance: random.Random) -> bytes:
    rest = [lines.copy() for lines in files]
    result = []
    while any(rest):
        lines = chance.choice([lines for lines in rest if lines])
        run = chance.randrange(1, 9)
        result += lines[:run]
        del lines[:run]
    return b"".join(result)


def test_a_dropped_line_is_not_hidden_by_a_repeated_one() -> None:
    lines = source("a", 100)
    received = lines.copy()

    repeat(received, 70)
    drop(received, 20)
    verdict = judge([b"".join(lines)], b"".join(received))

    assert (verdict.received, verdict.missing, verdict.repeated) == (100, 1, 1)


def test_a_repeated_run_of_lines_is_repeated_and_nothing_else() -> None:
    lines = source("a", 100)

    verdict = judge([b"".join(lines)], b"".join(lines[:60] + lines[40:]))

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"repeated": 20}


def test_two_runs_that_changed_places_are_out_of_order() -> None:
    lines = source("a", 100)

    verdict = judge([b"".join(lines)], b"".join(lines[50:] + lines[:50]))

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"reordered": 50}


def test_lines_run_together_are_torn() -> None:
    lines = source("a", 20)
    received = lines.copy()
    received[5] = received[5][:-1]

    verdict = judge([b"".join(lines)], b"".join(received))

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"torn": 1}


def test_half_a_line_written_again_whole_is_torn() -> None:
    lines = source("a", 20)
    received = [*lines[:9], lines[9][:11] + lines[9], *lines[10:]]

    verdict = judge([b"".join(lines)], b"".join(received))

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"torn": 1}


def test_half_a_line_beside_the_whole_one_is_torn() -> None:
    lines = source("a", 20)
    received = [*lines[:9], lines[9][:11] + b"\n", *lines[9:]]

    verdict = judge([b"".join(lines)], b"".join(received))

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"torn": 1}


def test_a_received_file_that_ends_within_a_line_is_torn() -> None:
    lines = source("a", 20)

    verdict = judge([b"".join(lines)], b"".join(lines)[:-1])

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"torn": 1}


def test_a_missing_empty_line_is_seen() -> None:
    verdict = judge([b"a\n\nb\n\nc\n"], b"a\n\nb\nc\n")

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"missing": 1}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([b"x\n", b"y\n", b"\n"]), max_size=40), st.data())
def test_lines_that_are_all_alike_are_judged_too(lines: list[bytes], data: st.DataObject) -> None:
    received = [line for line in lines if data.draw(st.booleans())]

    verdict = judge([b"".join(lines)], b"".join(received))

    assert verdict.missing == len(lines) - len(received)
    assert verdict.repeated == verdict.reordered == 0
    assert verdict.bytes_equal == (lines == received)


def test_a_line_that_two_files_share_is_judged_by_its_count() -> None:
    one, other = [b"a1\n", b"\n", b"a2\n"], [b"b1\n", b"\n", b"b2\n"]
    written = [b"".join(one), b"".join(other)]

    assert judge(written, b"a1\nb1\n\n\nb2\na2\n").is_perfect
    assert judge(written, b"a1\nb1\n\nb2\na2\n").missing == 1
    assert judge(written, b"a1\nb1\n\n\n\nb2\na2\n").repeated == 1


def test_order_within_one_of_two_interleaved_files_matters() -> None:
    verdict = judge([b"a1\na2\n", b"b1\nb2\n"], b"a2\nb1\na1\nb2\n")

    assert counts(verdict) == dict.fromkeys(DAMAGES, 0) | {"reordered": 1}


def test_an_unfinished_last_line_is_expected_with_its_newline() -> None:
    assert judge([b"one\ntwo"], b"one\ntwo\n").is_perfect


def test_a_quarter_of_a_million_lines_with_damages_are_judged_in_seconds() -> None:
    lines = [b"%d some words of an ordinary line\n" % n for n in range(250_000)]
    received = lines.copy()
    for at in range(225_000, 0, -50_000):
        drop(received, at)
        repeat(received, at - 1000)
        move(received, at - 2000)
        tear(received, at - 3000)
    began = time.process_time()

    verdict = judge([b"".join(lines)], b"".join(received))

    assert counts(verdict) == {
        "missing": 5,
        "repeated": 5,
        "reordered": 5,
        "torn": 5,
        "altered": 0,
        "foreign": 0,
    }
    assert time.process_time() - began < 5


def test_a_file_of_damaged_lines_only_is_judged_in_seconds() -> None:
    lines = source("a", 40_000)
    received = [line[:9] + b"\x01\n" for line in lines]
    began = time.process_time()

    verdict = judge([b"".join(lines)], b"".join(received))

    assert verdict.received == 40_000
    assert not verdict.is_perfect
    assert time.process_time() - began < 8


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


def test_a_segment_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "web01.log.000001.zst").write_bytes(zstandard.compress(b"one\n"))
    (tmp_path / "web01.log.000001").write_bytes(b"one\n")

    with pytest.raises(ValueError, match="segment 1 of web01 is there twice"):
        judge_host([], tmp_path, "web01")


@pytest.mark.parametrize(
    ("received", "complete", "perfect"),
    [
        pytest.param(b"a\nb\nc\n", True, True, id="equal"),
        pytest.param(b"b\nc\na\n", True, False, id="in another order"),
        pytest.param(b"a\nb\nb\n", False, False, id="with one for another"),
        pytest.param(b"a\nb\n", False, False, id="without one"),
        pytest.param(b"a\nb\nc", False, False, id="without its last newline"),
        pytest.param(b"", False, False, id="nothing"),
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
