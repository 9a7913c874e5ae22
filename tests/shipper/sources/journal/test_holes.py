"""What missing numbers of a journal mean, by the headers of its files."""

import random

import pytest

from shipper.sources.journal.headers import JournalFile
from shipper.sources.journal.holes import Holes


def file(journal: str, head: int, tail: int, entries: int | None = None) -> JournalFile:
    count = tail - head + 1 if entries is None else entries
    return JournalFile(f"{journal}-{head}", journal, head, tail, count, head, tail)


SYSTEM, NEXT = file("s", 10, 19), file("s", 30, 39)
SPARSE, USER = file("s", 10, 19, 6), file("u", 12, 35, 8)


@pytest.mark.parametrize(
    ("start", "end", "files", "lost"),
    [
        pytest.param(3, 10, [SYSTEM], 7, id="vacuumed"),
        pytest.param(3, 12, [SYSTEM], 9, id="vacuumed, and two that cannot be read"),
        pytest.param(3, 12, [], 9, id="all files are gone"),
        pytest.param(12, 15, [SYSTEM], 3, id="a file that has all its entries"),
        pytest.param(12, 15, [SPARSE, USER], 0, id="numbers of a user's journal"),
        pytest.param(12, 18, [SPARSE, USER], 2, id="more than the file lacks"),
        pytest.param(20, 30, [SYSTEM, NEXT], 10, id="a file in between is gone"),
        pytest.param(20, 30, [SYSTEM, NEXT, USER], 0, id="between files, a user's"),
        pytest.param(20, 30, [SYSTEM, NEXT, file("u", 25, 27)], 7, id="three of them a user's"),
        pytest.param(12, 15, [file("s", 10, 19, 6), file("s", 11, 18, 4)], 3, id="overlapping"),
    ],
)
def test_missing_numbers_are_lost_unless_headers_say_otherwise(
    start: int, end: int, files: list[JournalFile], lost: int
) -> None:
    assert Holes().count_lost(start, end, "s", files) == lost


def test_a_file_excuses_no_more_numbers_than_it_lacks_in_all() -> None:
    holes = Holes()
    found = [holes.count_lost(at, at + 2, "s", [SPARSE, USER]) for at in (11, 14, 17)]
    assert found == [0, 0, 2]


@pytest.mark.parametrize("seed", range(50))
def test_losses_are_counted_exactly_while_journals_share_their_numbers(seed: int) -> None:
    chance = random.Random(seed)
    owners = [chance.choice("ssu") for _ in range(200)]  # of the numbers from 1 on
    own = [number for number, owner in enumerate(owners, 1) if owner == "s"]
    other = [number for number, owner in enumerate(owners, 1) if owner == "u"]
    unreadable = set(chance.sample(own[:-1], chance.randrange(10)))
    gone = chance.randrange(len(own) // 2)  # of the first entries: they were vacuumed
    left = own[gone:]
    files = [
        file("s", left[0], left[-1], len(left)),
        file("u", other[0], other[-1], len(other)),
    ]
    holes, position, lost = Holes(), 1, 0
    for number in left:
        if number not in unreadable:
            lost += holes.count_lost(position, number, "s", files)
            position = number + 1
    # which numbers below the first entry were others' is not known any more
    assert lost == left[0] - 1 + len([one for one in unreadable if one >= left[0]])
