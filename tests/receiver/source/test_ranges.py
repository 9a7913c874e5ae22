"""Which sequences are read: losses, another stream, pieces. No fixtures."""

import pytest

from receiver.source.ranges import LostSequences, StreamEnds, cut, kept, refuse_rewind, returned

STATE = StreamEnds(first=50, until=100, messages=40, size=4000, created=5)
P0, P1 = "logs.p0.>", "logs.p1.>"


@pytest.mark.parametrize(
    ("first", "until", "lost"),
    [
        pytest.param(20, 80, "20 to 49", id="in part"),
        pytest.param(20, 30, "20 to 29", id="as a whole: to its own end"),
    ],
)
def test_what_retention_removed_is_named_or_passed(first: int, until: int, lost: str) -> None:
    with pytest.raises(LostSequences, match=f"sequences {lost} were removed"):
        kept(first, until, STATE, fail=True)

    assert kept(first, until, STATE, fail=False) == 50


def test_a_position_behind_the_end_belongs_to_another_stream() -> None:
    refuse_rewind(100, STATE)

    with pytest.raises(LostSequences, match="the stream ends at sequence 99, before 100"):
        refuse_rewind(101, STATE)


def test_bytes_become_sequences_by_the_average_size() -> None:
    assert STATE.window_of(1000) == 10
    assert STATE.window_of(1) == 1
    assert StreamEnds(1, 1, 0, 0).window_of(1000) == 1


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("subjects", [None, (P0,), (P0, P1)], ids=str)
def test_pieces_are_enough_and_cover_every_sequence_once(
    subjects: tuple[str, ...] | None, pieces: int
) -> None:
    ranges = cut(subjects, 60, 71, pieces, STATE)

    assert len(ranges) >= min(pieces, 11)
    for subject in subjects or (">",):
        own = [item for item in ranges if item.subject == subject]
        assert [n for item in own for n in range(item.first, item.until)] == [*range(60, 71)]


def test_a_whole_stream_comes_in_pieces_of_32_mib_and_a_chosen_part_does_not() -> None:
    large = StreamEnds(1, 1001, 1000, 1000 * 1024 * 1024)

    assert [item.until - item.first for item in cut(None, 1, 101, 1, large)] == [32, 32, 32, 4]
    assert len(cut((P0,), 1, 101, 1, large)) == 1


@pytest.mark.parametrize(
    ("sequence", "created", "expected"),
    [
        pytest.param(70, 5, None, id="the same stream"),
        pytest.param(100, 5, None, id="all of it was read"),
        pytest.param(70, 4, 50, id="made anew, and grown past what was read: from its beginning"),
        pytest.param(300, 5, 100, id="gone back: what it holds was read"),
    ],
)
def test_a_query_knows_a_stream_that_is_another(
    sequence: int, created: int, expected: int | None
) -> None:
    assert returned(sequence, created, STATE, fail=False) == expected
    if expected is not None:
        with pytest.raises(LostSequences, match="made anew"):
            returned(sequence, created, STATE, fail=True)
