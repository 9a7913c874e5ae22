"""The undo journal: what it decides, and that it can break off at any byte."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.offset import Beginning
from receiver.writing import journal
from receiver.writing.journal import Batch, DamagedJournal, PreImage, Verdict, decide
from receiver.writing.logbook import Logbook

images = st.builds(
    PreImage,
    st.text(st.characters(codec="utf-8"), max_size=20)
    | st.just('{"version":1,"epoch":1,"first":1}'),
    st.none() | st.integers(0, 10**12),
    st.integers(0, 10**7),
    st.integers(0, 2**62),
)
batches = st.builds(
    Batch,
    st.integers(0, 1000),
    st.integers(1, 10**12),
    st.none() | st.integers(1, 10**12),
    st.lists(images, max_size=4).map(tuple),
)


def encode(batch: Batch) -> bytes:
    end = b"" if batch.until is None else journal.encode_end(batch.until)
    start = journal.encode_start(batch.epoch, batch.first)
    return journal.sealed(start + journal.encode_images(batch.images) + end)[0]


@given(st.lists(batches, max_size=4))
def test_the_last_batch_is_read_back(history: list[Batch]) -> None:
    data = b"".join(map(encode, history))

    assert journal.decode(data) == (history[-1] if history else None)


@given(batches, batches)
def test_broken_off_at_any_byte_it_says_what_was_whole(before: Batch, last: Batch) -> None:
    data = encode(last)

    for end in range(len(data)):
        found = journal.decode(encode(before) + data[:end])
        lines = data[:end].count(b"\n")
        if lines == 0:
            assert found == before
        else:
            whole = last.images[: lines - 1]
            assert found == Batch(last.epoch, last.first, None, whole)


@given(batches, st.integers(0, 200))
def test_a_torn_line_is_cut_before_anything_is_written_behind_it(batch: Batch, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p0.journal"
        data = encode(batch)
        path.write_bytes(data[: max(len(data) - cut, 0)])

        with Logbook(path) as logbook:
            logbook.start(7, 8, [PreImage("a", 1, 2)])
            logbook.end(9)
        with Logbook(path) as logbook:
            assert logbook.last == Batch(7, 8, 9, (PreImage("a", 1, 2),))


@pytest.mark.parametrize(
    "line",
    [
        b"junk",
        b'{"version":2,"epoch":1,"first":1}',
        b'{"until":3}',
        b'{"name":"a","length":1,"number":1}',
        b'{"version":1,"epoch":1,"first":1}',
        b"[]",
        b"null",
        b"",
    ],
)
def test_what_is_no_journal_is_damaged_and_not_empty(line: bytes) -> None:
    with pytest.raises(DamagedJournal):
        journal.decode(line + b"\n")


@pytest.mark.parametrize(
    ("last", "first", "epoch", "verdict"),
    [
        pytest.param(None, 5, 1, Verdict.CLEAN, id="no journal"),
        pytest.param(Batch(1, 1, 5, ()), 5, 1, Verdict.CLEAN, id="committed"),
        pytest.param(Batch(1, 5, 9, ()), 5, 2, Verdict.UNDO, id="written, not committed"),
        pytest.param(Batch(1, 5, None, ()), 5, 1, Verdict.UNDO, id="broken off"),
        pytest.param(Batch(3, 5, 9, ()), 5, 2, Verdict.NEWER, id="a later epoch wrote here"),
        pytest.param(Batch(3, 1, 5, ()), 5, 2, Verdict.NEWER, id="a later epoch committed"),
        pytest.param(Batch(1, 1, 5, ()), 4, 1, Verdict.FOREIGN, id="offset went back"),
        pytest.param(Batch(1, 1, 5, ()), 6, 1, Verdict.FOREIGN, id="offset went on without us"),
        pytest.param(Batch(1, 1, None, ()), 5, 1, Verdict.FOREIGN, id="unfinished, yet passed"),
    ],
)
def test_what_the_last_batch_means(
    last: Batch | None, first: int, epoch: int, verdict: Verdict
) -> None:
    assert journal.decide(last, first, epoch) is verdict


def test_a_journal_that_has_grown_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "p0.journal"
    for number in range(300):
        with Logbook(path) as logbook:
            logbook.start(1, number, [PreImage(f"host{n}.log", n, 1) for n in range(20)])
            logbook.end(number + 1)

    assert path.stat().st_size < 80 * 1024
    with Logbook(path) as logbook:
        assert logbook.last
        assert (logbook.last.until, len(logbook.last.images)) == (300, 20)


def test_a_journal_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / "p0.journal").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"):
        Logbook(tmp_path / "p0.journal")


@pytest.mark.parametrize(
    ("until", "verdict"), [(30, Verdict.CLEAN), (None, Verdict.UNDO)], ids=["whole", "torn"]
)
def test_after_a_restore_only_a_torn_batch_is_undone(until: int | None, verdict: Verdict) -> None:
    last = Batch(3, 20, until, ())
    lineage = (Beginning(4, 20, by_hand=True, restored=True), Beginning(5, 20))

    assert decide(last, 20, 5, lineage) is verdict


@given(batches, st.data())
def test_a_bit_that_changed_anywhere_in_the_last_batch_is_noticed(
    batch: Batch, data: st.DataObject
) -> None:
    written = bytearray(encode(batch))
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(DamagedJournal):
        journal.decode(bytes(written))


@pytest.mark.parametrize("history", [b"", encode(Batch(1, 1, 5, ()))], ids=["alone", "behind"])
def test_a_changed_end_of_the_one_line_of_a_batch_is_noticed(history: bytes) -> None:
    opening = encode(Batch(1, 5, None, ()))

    with pytest.raises(DamagedJournal):
        journal.decode(history + opening[:-1] + b"\x0b")


def test_a_line_taken_out_of_the_last_batch_is_noticed() -> None:
    images = [PreImage("a.log", 1, 1), PreImage("b.log", 2, 1)]
    whole = journal.sealed(
        journal.encode_start(1, 1) + journal.encode_images(images) + journal.encode_end(5)
    )[0]
    lines = whole.splitlines(keepends=True)

    for number in range(1, len(lines) - 1):
        with pytest.raises(DamagedJournal):
            journal.decode(b"".join(lines[:number] + lines[number + 1 :]))
