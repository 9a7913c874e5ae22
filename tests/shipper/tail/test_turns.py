"""Whose turn it is: chains one after the other, in each the oldest, and nothing between the pieces of an over-long line."""

import pytest

from shipper.positions import Cursor
from shipper.tail.identity import identify
from shipper.tail.paths import Packing
from shipper.tail.reader import Limits, Reading
from shipper.tail.scan import FileEntry, FileKey, Packed
from shipper.tail.tailer import Tailer
from shipper.tail.turns import MOST_PER_TURN, Turns, one_unpacked, share

SECOND = 1_000_000_000
GRACE = 5 * SECOND
LIMITS = Limits(block_size=100, max_line=1000, grace=GRACE, open_files=10)


class Files:
    """Chains of tailers made by hand; nothing is on disk."""

    def __init__(self) -> None:
        self.chains: dict[str, list[Tailer]] = {}
        self._inodes = iter(range(1, 1000))

    def add(
        self, group: str, size: int = 10, *, rotated: bool = False, packed: bool = False
    ) -> Tailer:
        inode = next(self._inodes)
        path = f"{group}.{inode}" if rotated else group
        how = Packed(Packing.GZIP, 5) if packed else None
        entry = FileEntry(path, path, group, FileKey(1, inode), size, 0, True, how)
        cursor = Cursor(f"id-{inode}", group, 0, identify(inode, b"", b""), 0)
        tailer = Tailer(cursor, entry, b"x" * min(size, 1024), b"", 0)
        self.chains.setdefault(group, []).append(tailer)
        return tailer


@pytest.fixture
def files() -> Files:
    return Files()


def read(tailer: Tailer, run: bytes, size: int, now: int = 0, rest: bytes = b"") -> None:
    runs = (run,) if run else ()
    tailer.accept(Reading(True, size, now, runs, rest), now, LIMITS)


def rounds_of(turns: Turns, files: Files, times: int) -> list[str]:
    groups = []
    for _ in range(times):
        for tailer in turns.next(files.chains, 0, GRACE, 1).tailers:
            turns.took(tailer)
            groups.append(tailer.entry.group)
    return groups


def test_a_file_that_is_flooded_does_not_starve_the_others(files: Files) -> None:
    turns = Turns()
    for group in ("flood", "b", "c"):
        files.add(group)
    turns.join(files.chains)
    turns.join(["flood"])  # written to again and again, which moves it neither up nor down

    assert rounds_of(turns, files, 6) == ["flood", "b", "c"] * 2


def test_who_comes_later_stands_behind_those_who_wait(files: Files) -> None:
    turns = Turns()
    for group in ("a", "b", "late"):
        files.add(group)
    turns.join(["a", "b"])
    assert rounds_of(turns, files, 1) == ["a"]

    turns.join(["late"])

    assert rounds_of(turns, files, 3) == ["b", "a", "late"]


def test_as_many_are_read_at_once_as_are_asked_for(files: Files) -> None:
    turns = Turns()
    for number in range(10):
        files.add(f"f{number}")
    turns.join(files.chains)

    ready = turns.next(files.chains, 0, GRACE, 4).tailers

    assert [tailer.entry.group for tailer in ready] == ["f0", "f1", "f2", "f3"]


def test_the_oldest_of_a_chain_comes_first_and_the_others_wait_for_it(files: Files) -> None:
    turns = Turns()
    old, middle, live = files.add("a", rotated=True), files.add("a", rotated=True), files.add("a")
    turns.join(files.chains)

    order = []
    for _ in range(3):
        [tailer] = turns.next(files.chains, GRACE, GRACE, 9).tailers
        order.append(tailer)
        read(tailer, b"123456789\n", 10)

    assert order == [old, middle, live]
    assert turns.next(files.chains, GRACE, GRACE, 9).tailers == []
    assert len(turns) == 0


def test_the_unfinished_line_of_a_rotated_file_is_waited_for_and_only_its_own_chain_waits(
    files: Files,
) -> None:
    turns = Turns()
    old, other = files.add("a", rotated=True), files.add("b")
    files.add("a")
    turns.join(files.chains)
    read(old, b"", 10, now=SECOND, rest=b"unfinished")

    early = turns.next(files.chains, 2 * SECOND, GRACE, 9)
    late = turns.next(files.chains, 2 * SECOND + GRACE, GRACE, 9)

    assert (early.tailers, early.is_unsettled) == ([other], True)
    assert (late.tailers, late.is_unsettled) == ([old, other], False)


def test_nobody_is_read_behind_a_doubtful_file_of_the_same_chain(files: Files) -> None:
    turns = Turns()
    files.add("a", rotated=True).suspect = True
    files.add("a")
    other = files.add("b")
    turns.join(files.chains)

    assert turns.next(files.chains, 0, GRACE, 9).tailers == [other]
    assert len(turns) == 1  # the next look lets the chain join again


def test_nothing_comes_between_the_pieces_of_an_over_long_line(files: Files) -> None:
    turns = Turns()
    line, other = files.add("a", size=50), files.add("b")
    turns.join(files.chains)
    read(line, b"a piece", 50)
    turns.was_read(line)

    assert turns.next(files.chains, 0, GRACE, 9).tailers == [line]

    read(line, b" and the end\n", 50)
    turns.was_read(line)
    assert turns.next(files.chains, 0, GRACE, 9).tailers == [line, other]


def test_all_wait_a_second_for_the_rest_of_a_line_that_is_not_written_yet_and_no_longer(
    files: Files,
) -> None:
    turns = Turns()
    line, other = files.add("a", size=7), files.add("b")
    turns.join(files.chains)
    read(line, b"a piece", 7, now=SECOND)
    turns.was_read(line)

    assert turns.is_held(2 * SECOND - 1)
    assert turns.next(files.chains, 2 * SECOND - 1, GRACE, 9).tailers == []
    assert not turns.is_held(2 * SECOND)
    assert turns.next(files.chains, 2 * SECOND, GRACE, 9).tailers == [other]


def test_a_line_is_gone_on_with_after_a_look_and_forgotten_with_its_file(files: Files) -> None:
    turns = Turns()
    line = files.add("a", size=7)
    read(line, b"a piece", 7)

    turns.resume([line])
    assert turns.is_held(0)
    turns.resume([])
    assert not turns.is_held(0)


def test_one_compressed_file_at_a_time_is_unpacked_and_the_one_that_was_begun_first(
    files: Files,
) -> None:
    plain, first = files.add("a"), files.add("b", packed=True)
    begun, last = files.add("c", packed=True), files.add("d")
    all_ = [plain, first, begun, last]

    assert one_unpacked(all_, begun.entry.key) == [plain, begun, last]
    assert one_unpacked(all_, FileKey(9, 9)) == [plain, first, last]
    assert one_unpacked(all_, None) == [plain, first, last]
    assert one_unpacked([plain, last], None) == [plain, last]


def test_a_compressed_file_takes_nobody_s_turn_and_keeps_its_own(files: Files) -> None:
    turns = Turns()
    packed, plain = files.add("a", packed=True), files.add("b")
    turns.join(files.chains)

    for _ in range(3):
        ready = turns.next(files.chains, 0, GRACE, 1).tailers
        assert ready == [packed, plain]
        for tailer in ready:
            turns.took(tailer)


@pytest.mark.parametrize(
    ("budget", "readers", "expected"),
    [(0, 0, 100), (1000, 4, 250), (1000, 100, 100), (1 << 30, 1, MOST_PER_TURN)],
)
def test_the_budget_is_shared_equally_by_at_least_a_block_each(
    budget: int, readers: int, expected: int
) -> None:
    assert share(budget, readers, 100) == expected
