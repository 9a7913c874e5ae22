"""The store: any name is found again, an operator can read it, and no other module has SQL."""

import ast
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nats_logship import history, table_files, table_pieces, table_query
from receiver.storage import database, store
from receiver.storage.anomalies import Anomaly, AnomalyKind
from receiver.storage.rows import FileRow
from receiver.storage.spans import StoredSpanEnds, put_gaps
from receiver.storage.store import Store
from tests.receiver.stored import begun

any_text = st.one_of(
    st.binary(min_size=1, max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.text(st.characters(), max_size=20),
    st.text(st.sampled_from("\0a\udcff\ud800\udfff\ufffddc�"), max_size=12),
)
names_of_files = st.lists(any_text, min_size=1, max_size=8, unique=True)
MODULES = {
    Path(module.__file__).resolve()
    for module in (database, history, store, table_files, table_pieces, table_query)
}
ROOT = Path(store.__file__).resolve().parents[2]
PROGRAMS = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
SQL = re.compile(
    r"\b(SELECT\s.+|DELETE\s+FROM\s|UPDATE\s+\w+\s+SET\s|INSERT\s.*\bINTO\s|PRAGMA\s)"
    r"|\w (=|<|>|>=|!=) \?|\bIN \(SELECT\b|\bCREATE TABLE\b",
    re.DOTALL,
)


@given(names_of_files)
@example(["\udcff", "\ufffddcff", "\ud800", "\udced\udca0\udc80", "a\0b", "a"])
def test_any_name_is_found_again_and_is_not_confused_with_another(names: list[str]) -> None:
    with Store.in_memory() as store:
        ends = StoredSpanEnds(store)
        with store.transaction():
            store.put_files(FileRow(f"{n}.log", name, name, "") for n, name in enumerate(names))
            for number, name in enumerate(names):
                ends[name, name] = number, 1
            ends.store(1)
            put_gaps(store, [gap(name, number) for number, name in enumerate(names)], 1)

        for number, name in enumerate(names):
            (row,) = store.list_files_of_source(name, name, "")
            assert (row.path, row.host, row.source) == (f"{number}.log", name, name)
            assert StoredSpanEnds(store)[name, name] == (number, 1)
        assert [row[0] for row in store.rows("SELECT file FROM gaps ORDER BY id")] == names
        assert {row.path for row in store.list_files()} == {f"{n}.log" for n in range(len(names))}


@given(names_of_files)
def test_a_path_is_a_folder_if_files_are_below_it(names: list[str]) -> None:
    rows = [FileRow(f"{name}/{number}", "h", name, "") for number, name in enumerate(names)]
    for name in names:
        below = [row for row in rows if row.path.startswith(f"{name}/")]
        with Store.in_memory() as store, store.transaction():
            store.put_files(row for row in rows if row not in below)
            assert not store.has_files_below(name)
            store.put_files(below)
            assert store.has_files_below(name)


@settings(max_examples=20, deadline=None)
@given(any_text)
def test_an_operator_can_read_every_row(name: str) -> None:
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


def test_a_reader_sees_what_the_receiver_writes_meanwhile(tmp_path: Path) -> None:
    with begun(tmp_path, tmp_path) as reader, Store(reader.path) as writer:
        assert reader.find_file("web01.log") is None
        before = reader.read_batch()
        assert before is not None
        written = FileRow("web01.log", "web01", "", "", length=7)
        with writer.transaction():
            writer.put_files([written])
            writer.put_batch(before._replace(number=2))

        assert reader.find_file("web01.log") == written
        assert reader.read_batch() == before._replace(number=2)


def gap(file: str, start: int) -> Anomaly:
    return Anomaly(AnomalyKind.GAP, "web01", file, "id", start, start + 1, 1, 0)


def find_sql(path: Path) -> list[int]:
    """Return the lines of a module on which a text with SQL begins."""
    nodes = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Constant)]
    return [one.lineno for one in nodes if isinstance(one.value, str) and SQL.search(one.value)]


def test_only_stores_and_the_history_have_sql() -> None:
    found = {
        path.resolve(): find_sql(path)
        for program in PROGRAMS
        for path in (ROOT / program).rglob("*.py")
    }

    assert sum(len(found.pop(path)) for path in MODULES) > 40
    assert {path: lines for path, lines in found.items() if lines} == {}
