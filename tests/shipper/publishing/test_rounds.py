"""Rounds are cut within their limits and published whole."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.block import Block, Identity, Origin, Span
from shipper.publishing.rounds import FIRST_SIZE, LONE_SIZE, Round, cut, next_size, outgoing


def block(size: int, start: int = 0, file: str = "/a") -> Block:
    span = Span("f", start, start + size)
    return Block(Origin("1-aaaaaaaa", file, span, Identity(1, 0, "", 0, ""), 1, 1), b"x" * size)


@given(st.lists(st.integers(1, 50)), st.integers(1, 100), st.integers(1, 5))
def test_cutting_keeps_every_block_in_order_and_every_limit(
    sizes: list[int], most_bytes: int, most_blocks: int
) -> None:
    blocks = [block(size, number) for number, size in enumerate(sizes)]

    rounds = cut(blocks, most_bytes, most_blocks)

    assert [b for r in rounds for b in r.blocks] == blocks
    for r in rounds:
        size = sum(len(b.payload) for b in r.blocks)
        assert 1 <= len(r.blocks) <= most_blocks
        assert size <= most_bytes or len(r.blocks) == 1


def test_one_block_is_a_plain_publish_with_the_expectation() -> None:
    (message,) = outgoing(Round((block(3),)), 41, "id")

    assert message.answered
    assert message.headers["Nats-Expected-Last-Subject-Sequence"] == "41"
    assert not [name for name in message.headers if name.startswith("Nats-Batch")]


def test_more_blocks_are_a_batch_that_begins_with_the_expectation_and_ends_with_the_commit() -> (
    None
):
    messages = outgoing(Round((block(3), block(3, 3), block(3, 6))), 41, "id")

    assert [m.headers["Nats-Batch-Sequence"] for m in messages] == ["1", "2", "3"]
    assert {m.headers["Nats-Batch-Id"] for m in messages} == {"id"}
    assert [m.headers.get("Nats-Batch-Commit") for m in messages] == [None, None, "1"]
    assert [m.headers.get("Nats-Expected-Last-Subject-Sequence") for m in messages] == [
        "41",
        None,
        None,
    ]
    assert [m.answered for m in messages] == [True, False, True]


def test_the_last_origin_of_a_round_is_that_of_its_last_block(
    make_block: Callable[..., Block],
) -> None:
    first, last = make_block("1-aaaaaaaa", 0, b"a\n"), make_block("1-aaaaaaaa", 2, b"b\n")

    assert Round((first, last)).last == last.origin


LONE = Round((block(100), block(100, 100)))
MIXED = Round((block(100), block(100, file="/b")))


@pytest.mark.parametrize(
    ("round_", "took", "most"),
    [
        pytest.param(MIXED, 0.01, 2 * LONE_SIZE, id="many files, nearby"),
        pytest.param(LONE, 0.1, 2 * LONE_SIZE, id="one file, far away"),
        pytest.param(LONE, 0.01, LONE_SIZE, id="one file, nearby"),
    ],
)
def test_rounds_grow_on_a_quick_line_up_to_what_suits_it(
    round_: Round, took: float, most: int
) -> None:
    size = FIRST_SIZE
    for _ in range(10):
        size = next_size(size, round_, took, 2 * LONE_SIZE)

    assert size == most


def test_rounds_grow_the_faster_the_quicker_they_are_acknowledged() -> None:
    grown = [next_size(FIRST_SIZE, LONE, took, 64 * FIRST_SIZE) for took in (0.1, 0.5, 2.0)]

    assert grown == [4 * FIRST_SIZE, 2 * FIRST_SIZE, FIRST_SIZE]


def test_large_rounds_shrink_to_one_block_once_one_file_is_left_and_the_broker_is_near() -> None:
    full = Round(tuple(block(LONE_SIZE, n * LONE_SIZE) for n in range(4)))

    assert next_size(4 * LONE_SIZE, full, 0.2, 4 * LONE_SIZE) == LONE_SIZE
    assert next_size(4 * LONE_SIZE, full, 0.3, 4 * LONE_SIZE) == 4 * LONE_SIZE


def test_rounds_shrink_on_a_slow_line_but_not_to_nothing() -> None:
    size = most = 4 * 1024 * 1024
    for _ in range(10):
        size = next_size(size, LONE, 20.0, most)

    assert size == FIRST_SIZE


def test_rounds_stay_as_they_are_in_between_and_never_pass_their_limit() -> None:
    assert next_size(FIRST_SIZE, LONE, 3.0, 4 * FIRST_SIZE) == FIRST_SIZE
    assert {next_size(FIRST_SIZE, LONE, took, 65536) for took in (0.0, 3.0, 30.0)} == {65536}
