"""Which sequences are read: windows, losses, pieces. No fixtures."""

import pytest

from broker.wire.subjects import partition_filter
from receiver.source.ranges import (
    Loss,
    Range,
    StreamState,
    advance,
    between,
    refuse_rewind,
    returned,
    split,
    without_loss,
)

P = {number: partition_filter(number) for number in range(10)}
STATE = StreamState(first=50, until=100, messages=40, size=4000)


@pytest.mark.parametrize(
    ("start", "target", "window", "expected"),
    [
        pytest.param(
            {P[0]: 5, P[1]: 5}, 30, None, {P[0]: 30, P[1]: 30}, id="no limit: all there is"
        ),
        pytest.param(
            {P[0]: 5, P[1]: 5}, 30, 10, {P[0]: 15, P[1]: 15}, id="a window of sequences for all"
        ),
        pytest.param({P[0]: 5, P[1]: 28}, 30, 10, {P[0]: 15, P[1]: 28}, id="who is ahead waits"),
        pytest.param(
            {P[0]: 28, P[1]: 28}, 30, 10, {P[0]: 30, P[1]: 30}, id="no further than the target"
        ),
        pytest.param({P[0]: 40}, 30, 10, {P[0]: 40}, id="never back"),
        pytest.param({}, 30, 10, {}, id="no partitions"),
    ],
)
def test_a_batch_ends_at_the_target_or_with_its_window(
    start: dict[int, int], target: int, window: int | None, expected: dict[int, int]
) -> None:
    assert advance(start, target, window) == expected


def test_windows_reach_the_target_and_cover_every_sequence_once() -> None:
    start, read = {P[0]: 3, P[1]: 17}, {P[0]: set[int](), P[1]: set[int]()}

    while (end := advance(start, 42, 5)) != start:
        for item in between(start, end):
            sequences = set(range(item.first, item.until))
            assert not sequences & read[item.subject]
            read[item.subject] |= sequences
        start = end

    assert read == {P[0]: set(range(3, 42)), P[1]: set(range(17, 42))}


def test_a_partition_without_news_is_not_read() -> None:
    assert between({P[0]: 5, P[1]: 7}, {P[0]: 9, P[1]: 7}) == [Range(P[0], 5, 9)]


def test_a_partition_that_came_into_being_since_begins_with_the_furthest_behind() -> None:
    assert between({P[0]: 5, P[1]: 7}, {P[0]: 9, P[1]: 9, P[2]: 9}) == [
        Range(P[0], 5, 9),
        Range(P[1], 7, 9),
        Range(P[2], 5, 9),
    ]


def test_a_partition_that_is_no_longer_wanted_is_not_read() -> None:
    assert between({P[0]: 5, P[1]: 7}, {P[1]: 9}) == [Range(P[1], 7, 9)]


def test_what_retention_removed_is_named() -> None:
    with pytest.raises(Loss, match="partition 3: sequences 20 to 49 were removed"):
        without_loss([Range(P[3], 20, 80)], STATE, fail=True)


def test_a_range_that_was_removed_as_a_whole_is_named_to_its_own_end() -> None:
    with pytest.raises(Loss, match="sequences 20 to 29 were"):
        without_loss([Range(P[3], 20, 30)], STATE, fail=True)


def test_reading_goes_on_behind_a_loss_when_that_is_wanted() -> None:
    ranges = [Range(P[0], 20, 80), Range(P[1], 20, 30), Range(P[2], 60, 80)]

    assert without_loss(ranges, STATE, fail=False) == [Range(P[0], 50, 80), Range(P[2], 60, 80)]


def test_the_first_sequence_of_the_stream_is_no_loss() -> None:
    assert without_loss([Range(P[0], 50, 80)], STATE, fail=True) == [Range(P[0], 50, 80)]


def test_a_position_behind_the_end_belongs_to_another_stream() -> None:
    refuse_rewind({P[0]: 100, P[1]: 7}, STATE)

    with pytest.raises(Loss, match="partition 1: the stream ends at sequence 99, before 100"):
        refuse_rewind({P[0]: 100, P[1]: 101}, STATE)


def test_bytes_become_sequences_by_the_average_size() -> None:
    assert STATE.window_of(1000) == 10
    assert STATE.window_of(1) == 1
    assert StreamState(1, 1, 0, 0).window_of(1000) == 1


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 100])
def test_pieces_are_enough_and_cover_every_sequence_once(pieces: int) -> None:
    ranges = [Range(P[0], 10, 21), Range(P[5], 12, 13)]

    cut = split(ranges, pieces)

    assert len(cut) >= min(pieces, 12)
    assert [s for i in cut if i.subject == P[0] for s in range(i.first, i.until)] == [
        *range(10, 21)
    ]
    assert [i for i in cut if i.subject == P[5]] == [Range(P[5], 12, 13)]


def test_nothing_is_cut_into_nothing() -> None:
    assert split([], 4) == []


def test_no_piece_is_longer_than_it_may_be() -> None:
    cut = split([Range(P[0], 10, 31)], 2, longest=4)

    assert [item.until - item.first for item in cut] == [4, 4, 4, 4, 4, 1]


@pytest.mark.parametrize(
    ("position", "created", "expected"),
    [
        pytest.param(70, 5, None, id="the same stream"),
        pytest.param(70, 0, None, id="offsets that do not say which stream they are of"),
        pytest.param(100, 5, None, id="all of it was read"),
        pytest.param(70, 4, 50, id="made anew, and grown past what was read: from its beginning"),
        pytest.param(300, 5, 100, id="gone back: what it holds was read"),
    ],
)
def test_a_query_knows_a_stream_that_is_another(
    position: int, created: int, expected: int | None
) -> None:
    state = StreamState(first=50, until=100, messages=40, size=4000, created=5)

    moved = returned({P[0]: position}, created, state, fail=False)

    assert moved == (None if expected is None else {P[0]: expected})
    if expected is not None:
        with pytest.raises(Loss, match="made anew"):
            returned({P[0]: position}, created, state, fail=True)
