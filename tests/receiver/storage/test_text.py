"""The store and text: whatever a path holds comes back as it was, and an operator can read it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from receiver.storage.anomalies import Anomaly, AnomalyKind
from receiver.storage.rows import FileRow
from receiver.storage.spans import StoredSpanEnds, put_gaps
from receiver.storage.store import Store
from tests.receiver.stored import begun

bytes_of_names = st.binary(min_size=1, max_size=40).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)
any_text = st.one_of(
    bytes_of_names,
    st.text(st.characters(), max_size=20),
    st.text(st.sampled_from("\0a\udcff\ud800\udfff\ufffddc�"), max_size=12),
)


@given(st.lists(any_text, min_size=1, max_size=8, unique=True))
@example(["\udcff", "\ufffddcff", "\ud800", "\udced\udca0\udc80", "a\0b", "a"])
def test_any_name_is_found_again_and_is_no_other(names: list[str]) -> None:
    with Store.in_memory() as store:
        spans = StoredSpanEnds(store)
        with store.transaction():
            store.put_files(FileRow(f"{n}.log", name, name, "") for n, name in enumerate(names))
            for number, name in enumerate(names):
                spans[name, name] = number, 1
            spans.store(1)
            found = [gap(name, number) for number, name in enumerate(names)]
            put_gaps(store, found, 1)

        for number, name in enumerate(names):
            rows = store.list_files_of_source(name, name, "")
            assert [(row.path, row.host, row.source) for row in rows] == [
                (f"{number}.log", name, name)
            ]
            assert StoredSpanEnds(store)[name, name] == (number, 1)
        assert [row[0] for row in store.rows("SELECT file FROM gaps ORDER BY id")] == names
        assert {row.path for row in store.list_files()} == {f"{n}.log" for n in range(len(names))}


@given(st.lists(any_text, min_size=1, max_size=8, unique=True))
def test_a_folder_is_known_by_the_files_below_it_alone(names: list[str]) -> None:
    paths = [f"{name}/{number}" for number, name in enumerate(names)]
    with Store.in_memory() as store:
        with store.transaction():
            store.put_files(FileRow(path, "h", path, "") for path in paths)

        for name in names:
            others = [path for path in paths if not path.startswith(f"{name}/")]
            assert store.has_files_below(name)
            with store.transaction():
                store.forget_files(path for path in paths if path not in others)
            assert not store.has_files_below(name)
            with store.transaction():
                store.put_files(FileRow(path, "h", path, "") for path in paths)


@settings(max_examples=20, deadline=None)
@given(any_text)
def test_an_operator_reads_every_row_and_ordinary_names_as_they_are(name: str) -> None:
    with TemporaryDirectory() as folder:
        with begun(Path(folder), Path(folder)) as store:
            with store.transaction():
                put_gaps(store, [gap(name, 1), gap("/var/log/häßlich %41.log", 2)], 1)
            path = store.path

        with closing(sqlite3.connect(path)) as reader:
            rows = reader.execute("SELECT file FROM gaps ORDER BY id").fetchall()
    assert rows[1] == ("/var/log/häßlich %41.log",)
    if name.isprintable() and "\ufffd" not in name:
        assert rows[0] == (name,)


def gap(file: str, start: int) -> Anomaly:
    return Anomaly(AnomalyKind.GAP, "web01", file, "id", start, start + 1, 1, 0)
