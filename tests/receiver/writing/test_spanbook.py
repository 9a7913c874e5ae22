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
from receiver.writing.spanbook import DamagedSpans, SpanBook, cut

FILES = [("web01", "a"), ("web01", "b"), ("a.much.longer.name.of.a.host.example.net", "f" * 40)]


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    spanbook._memories.clear()


class Workers(RuleBasedStateMachine):
    """Two reused workers with a memory each, one file, and a model that knows what was committed."""

    @initialize(folder=st.builds(lambda: tempfile.mkdtemp()))
    def begin(self, folder: str) -> None:
        self.path = Path(folder) / "p0.spans"
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
        book.compact()

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
        book.compact()
        for file in range(1000):
            book.note("web01", f"file-{file}", number, number)
        book.save()

    assert path.stat().st_size < 2_500_000
    spanbook._memories.clear()
    assert SpanBook(path).reached("web01", "file-999") == 59


@pytest.mark.parametrize("line", [b"junk\n", b"[]\n", b'["a","b","c"]\n', b"\0\0\n", b"{}\n"])
def test_what_cannot_be_read_is_said_so_each_time(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "p0.spans"
    path.write_bytes(b'["web01","a",5]\n' + line)

    for _ in range(2):
        with pytest.raises(DamagedSpans, match=r"p0\.spans"):
            SpanBook(path)
