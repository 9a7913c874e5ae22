"""The spans on disk, as workers that take turns remember them: what one wrote or undid the other never overlooks."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from receiver.writing import spanbook
from receiver.writing.received import MOST_OF_HOST
from receiver.writing.spanbook import DamagedSpans, SpanBook, cut

FILES = [("web01", "a"), ("web01", "b"), ("a.much.longer.name.of.a.host.example.net", "f" * 40)]


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    spanbook._memories.clear()


DAY = 24 * 3600 * 10**9
NOW = 1000 * DAY


class Workers(RuleBasedStateMachine):
    """Two reused workers with a memory each, one file, and a model that knows what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    @initialize()
    def begin(self) -> None:
        self.path = Path(self.folder.name) / "p0.spans"
        self.memories: list[dict[Any, Any]] = [{}, {}]
        self.model: dict[tuple[str, str], int] = {}
        self.uncommitted: tuple[Any, dict[tuple[str, str], int]] | None = None

    def book(self, worker: int) -> SpanBook:
        spanbook._memories = self.memories[worker]
        return SpanBook(self.path)

    @rule(
        worker=st.integers(0, 1),
        ends=st.dictionaries(st.sampled_from(FILES), st.integers(100, 999), min_size=1),
    )
    def write(self, worker: int, ends: dict[tuple[str, str], int]) -> None:
        self.undo(worker)
        book = self.book(worker)
        image = book.image()
        for key, end in ends.items():
            book.note(*key, end, 7)
        book.save()
        self.uncommitted = (image, dict(self.model))
        self.model |= ends

    @rule()
    def commit(self) -> None:
        self.uncommitted = None

    @rule(worker=st.integers(0, 1))
    def undo(self, worker: int) -> None:
        if self.uncommitted:
            image, self.model = self.uncommitted
            spanbook._memories = self.memories[worker]
            cut(self.path, image)
            self.uncommitted = None

    @rule(worker=st.integers(0, 1))
    def compact(self, worker: int) -> None:
        self.undo(worker)
        book = self.book(worker)
        book._memory.compact_at = 0
        book.compact(NOW)

    @rule(worker=st.integers(0, 1))
    def die(self, worker: int) -> None:
        self.memories[worker] = {}

    @rule(worker=st.integers(0, 1))
    def look(self, worker: int) -> None:
        book = self.book(worker)
        assert {key: book.reached(*key) for key in FILES} == {
            key: self.model.get(key) for key in FILES
        }

    @invariant()
    def nobody_is_wrong(self) -> None:
        if hasattr(self, "path"):
            spanbook._memories = {}
            book = SpanBook(self.path)
            assert {key: book.reached(*key) for key in FILES} == {
                key: self.model.get(key) for key in FILES
            }

    def teardown(self) -> None:
        self.folder.cleanup()
        spanbook._memories = {}


Workers.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestWorkers = Workers.TestCase


def test_a_worker_sees_what_another_rewrote_in_the_same_place(tmp_path: Path) -> None:
    path, mine, theirs = tmp_path / "p0.spans", dict[Any, Any](), dict[Any, Any]()
    spanbook._memories = mine
    book = SpanBook(path)
    image = book.image()
    book.note("web01", "a", 150, 1)
    book.note(*FILES[2], 200, 1)
    book.save()

    spanbook._memories = theirs
    cut(path, image)
    other = SpanBook(path)
    other.note("web01", "a", 100, 1)
    other.note(*FILES[2], 200, 1)
    other.save()

    spanbook._memories = mine
    assert SpanBook(path).reached("web01", "a") == 100


def test_history_is_dropped_when_there_is_much_of_it(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    for number in range(60):
        book = SpanBook(path)
        book.compact(NOW)
        for file in range(1000):
            book.note("web01", f"file-{file}", number, number)
        book.save()

    assert path.stat().st_size < 2_500_000
    spanbook._memories.clear()
    assert SpanBook(path).reached("web01", "file-999") == 59


@pytest.mark.parametrize("line", [b"junk\n", b"[]\n", b'["a","b","c"]\n', b"\0\0\n", b"{}\n"])
def test_what_cannot_be_read_is_said_so_each_time(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "p0.spans"
    path.write_bytes(b'["web01","a",5,1]\n' + line)

    for _ in range(2):
        with pytest.raises(DamagedSpans, match=r"p0\.spans"):
            SpanBook(path)


def test_files_of_which_nothing_came_for_a_month_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    book = SpanBook(path)
    book.note("web01", "of an unknown time", 5, 0)
    book.note("web01", "old", 10, 100 * DAY)
    book.note("web01", "quiet", 20, 111 * DAY)
    book.note("web01", "young", 30, 140 * DAY)
    book.save()
    book._memory.compact_at = 0
    for number in range(20):  # history, so that it is worth it
        book.note("web01", "young", 30 + number, 140 * DAY)
        book.save()
    book.compact(NOW)

    spanbook._memories.clear()
    found = SpanBook(path)
    assert found.reached("web01", "old") is None
    assert found.reached("web01", "quiet") == 20
    assert found.reached("web01", "young") == 49
    assert found.reached("web01", "of an unknown time") == 5
    assert found.read_at("web01", "young") == 140 * DAY


@pytest.mark.parametrize(
    ("newest", "now"),
    [
        pytest.param(400 * DAY, 141 * DAY, id="the broker's was, for one message"),
        pytest.param(140 * DAY, 400 * DAY, id="the receiver's is"),
        pytest.param(140 * DAY, 0, id="the receiver's is not set"),
    ],
)
def test_no_file_is_forgotten_because_a_clock_was_ahead(
    tmp_path: Path, newest: int, now: int
) -> None:
    book = SpanBook(tmp_path / "p0.spans")
    book.note("web01", "of that time", 10, newest)
    book.note("web01", "quiet", 20, 120 * DAY)
    for number in range(20):  # history, so that it is worth it
        book.note("web01", "young", 30 + number, 140 * DAY)
        book.save()
    before = book.image().length or 0
    book._memory.compact_at = 0
    book.compact(now)

    spanbook._memories.clear()
    found = SpanBook(tmp_path / "p0.spans")
    assert (found.image().length or 0) < before
    files = ("of that time", "quiet", "young")
    assert [found.reached("web01", file) for file in files] == [10, 20, 49]


def test_lines_behind_which_nobody_has_set_a_seal_are_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    path.write_bytes(b'["web01","a",5,1]\n["web01","b",7,1]\n')

    for end in (10, 20):
        book = SpanBook(path)
        book.note("web01", "b", end, 2)
        book.save()
        spanbook._memories.clear()

    found = SpanBook(path)
    assert found.reached("web01", "a") == 5
    assert found.reached("web01", "b") == 20


def test_no_more_than_a_number_of_files_of_a_host_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    book = SpanBook(path)
    book.note("web02", "silent", 7, 900)
    for number in range(MOST_OF_HOST + 10):
        book.note("web01", f"file-{number}", 1, 1000 + number)
    book.save()

    assert book.forgotten == 10
    (notice,) = book.notices
    assert notice.startswith("host web01 has sent lines of too many files")
    for _ in range(2):
        found = SpanBook(path)
        assert found.reached("web02", "silent") == 7
        assert [n for n in range(12) if found.reached("web01", f"file-{n}")] == [10, 11]
        spanbook._memories.clear()


def test_that_a_host_has_too_many_files_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    told, forgotten = [], 0
    for batch in range(3):
        book = SpanBook(path)
        for number in range(MOST_OF_HOST // 2 + 1):
            book.note("web01", f"file-{batch}-{number}", 1, 1000)
        book.save()
        told += book.notices
        forgotten += book.forgotten
        spanbook._memories.clear()

    assert len(told) == 1
    assert forgotten == MOST_OF_HOST // 2 + 3


def test_a_file_that_is_shorter_than_what_was_committed_is_never_filled_up(tmp_path: Path) -> None:
    book = SpanBook(tmp_path / "p0.spans")
    book.note("web01", "a", 5, 1)
    book.save()
    image = book.image()
    (tmp_path / "p0.spans").write_bytes(b"")

    with pytest.raises(DamagedSpans, match="were committed"):
        cut(tmp_path / "p0.spans", image)
    assert (tmp_path / "p0.spans").read_bytes() == b""


def test_unfinished_lines_are_remembered_by_whoever_comes_next_until_they_are_finished(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p0.spans"
    book = SpanBook(path)
    book.endings.joined("web01.log", FILES[0], b"piece", follows=True)
    book.save()
    spanbook._memories.clear()

    book = SpanBook(path)
    image, torn = book.image(), dict(book.endings.torn)
    book.endings.joined("web01.log", FILES[0], b"rest\n", follows=True)
    book.save()
    finished = SpanBook(path).endings.torn
    cut(path, image)

    assert (torn, finished) == ({"web01.log": FILES[0]}, {})
    assert SpanBook(path).endings.torn == torn


def test_a_bit_that_changed_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    book = SpanBook(path)
    book.note("web01", "a", 100, 1)
    book.save()
    written, seal = path.read_bytes(), book.seal

    for bit in range(8 * len(written)):
        changed = bytearray(written)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        spanbook._memories.clear()
        with pytest.raises(DamagedSpans, match=r"p0\.spans"):
            SpanBook(path).loss(seal)


def test_an_older_copy_and_one_that_was_cut_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "p0.spans"
    book = SpanBook(path)
    book.note("web01", "a", 100, 1)
    book.save()
    older = path.read_bytes()
    book.note("web01", "a", 200, 2)
    book.save()

    path.with_suffix(".copy").write_bytes(older)
    path.with_suffix(".copy").replace(path)

    with pytest.raises(DamagedSpans, match="an older one; bring it back"):
        SpanBook(path).loss(book.seal)


def test_a_copy_brought_back_is_cut_to_its_image_and_any_other_file_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p0.spans"
    book = SpanBook(path)
    book.note("web01", "a", 100, 1)
    book.save()
    image, seal, committed = book.image(), book.seal, path.read_bytes()
    book.note("web01", "a", 200, 2)
    book.save()
    whole = path.read_bytes()
    path.with_suffix(".kept").hardlink_to(path)  # or a copy might be given its inode

    for content in (committed.replace(b"100", b"300"), whole.replace(seal.encode(), b"0" * 16)):
        put(path, content)
        cut_by = pytest.raises(DamagedSpans, match="written anew")
        with cut_by:
            cut(path, image, "f" * 16)
        with cut_by:
            cut(path, image)
    put(path, whole)
    cut(path, image, seal)

    assert path.read_bytes() == committed
    assert SpanBook(path).reached("web01", "a") == 100


def put(path: Path, content: bytes) -> None:
    path.with_suffix(".copy").write_bytes(content)
    path.with_suffix(".copy").replace(path)


def test_what_was_compacted_ends_in_the_same_seal(tmp_path: Path) -> None:
    book = SpanBook(tmp_path / "p0.spans")
    for end in range(40):
        book.note("web01", "a", end, 1)
        book.save()
    before = (tmp_path / "p0.spans").stat().st_size
    book._memory.compact_at = 0
    book.compact(NOW)

    assert (tmp_path / "p0.spans").stat().st_size < before
    assert SpanBook(tmp_path / "p0.spans").loss(book.seal) is None


def test_a_worker_that_comes_to_all_partitions_remembers_the_last_two(tmp_path: Path) -> None:
    paths = [tmp_path / f"p{number}.spans" for number in range(4)]
    for path in [*paths, paths[2]]:
        book = SpanBook(path)
        book.note("web01", "a", 5, 1)
        book.save()

    assert list(spanbook._memories) == [paths[3], paths[2]]
    assert [SpanBook(path).reached("web01", "a") for path in paths] == [5] * 4
