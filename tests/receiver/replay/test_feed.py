"""The slices that a stream is fetched in."""

from collections.abc import Callable, Sequence

from receiver.replay.aside import beside
from receiver.replay.feed import LIMIT, Fetched, Slice, merged
from receiver.replay.files import Failed

UNTIL = 100_001
WINDOW = 400


def asked_for(size_of: Callable[[int], int]) -> list[list[int]]:
    """Fetch a stream whose messages have the size that is said of their sequence; return by job the slices' lengths."""
    asked: list[list[int]] = []

    def fetched(item: Slice) -> Fetched:
        size = 0
        for sequence in range(item.first, item.until):
            size += size_of(sequence)
            if size >= LIMIT:
                return Fetched((), sequence + 1, size)
        return Fetched((), item.until, size)

    def job(slices: Sequence[Slice]) -> list[Fetched | Failed]:
        asked.append([item.until - item.first for item in slices])
        return [fetched(item) for item in slices]

    with beside() as aside:
        found = list(merged(Slice((0,), 1, UNTIL), WINDOW, 4, job, aside))
    assert found[-1].until == UNTIL
    return asked


def test_slices_shrink_while_messages_are_large_and_grow_again_behind_them() -> None:
    asked = asked_for(lambda sequence: LIMIT // 25 if sequence <= 10_000 else 0)

    lengths = [max(lengths) for lengths in asked if len(lengths) == 4]
    assert min(lengths) <= 25
    assert lengths.count(WINDOW) > 50
    assert max(lengths) == WINDOW


def test_slices_of_messages_that_are_all_large_are_seldom_too_large() -> None:
    asked = asked_for(lambda _: LIMIT // 150)

    again = [lengths for lengths in asked if len(lengths) == 1]
    assert len(again) < 20
    assert len(asked) < UNTIL // (4 * 100) + 20
