"""A replay into Parquet: a row per line, in folders by date and host."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyspark.sql import SparkSession

from broker.app.selection import Selection
from broker.client.access import Access
from broker.wire.message import MAX_LINES_BYTES
from receiver.consume.rebuild import Piece
from receiver.replay.again import MOST_HELD, Reader
from receiver.replay.folder import finish, prepare, publish_table
from receiver.replay.table import batches, write_table
from receiver.replay.units import Unit, cut_evenly
from tests.receiver.partition import Partition, lines_of, message, ours


@pytest.mark.nats
@pytest.mark.spark
def test_every_line_is_a_row_and_a_repeat_is_none(
    spark: SparkSession, logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    until = 1 + partition.publish(
        ours("web01", "app.log", 0, b"one\n\nthree\n"),
        ours("web01", "app.log", 0, b"one\n\nthree\n"),
        ("logs.p0.web02", b"\xff plain", None),
        ("logs.p1.web03", b"x", {"Content-Encoding": "zstd"}),
        message(
            "web02",
            *(lines_of("a.log", 0, b"1\n2\n"), lines_of("b.log", 0, b"3\n")),
            *(lines_of("a.log", 0, b"1\n2\n"), lines_of("a.log", 4, b"4\n")),
        ),
    )
    out = tmp_path / "table"
    stage = prepare(out)

    count = write_table(
        spark,
        cut_evenly((0, 1), 1, until, 3),
        Reader((logs_url,), Access(), Selection()),
        stage / "table",
    )
    refused = publish_table(out, stage / "table")
    finish(out, {})

    rows = spark.read.parquet(str(out)).orderBy("sequence", "number").collect()
    today = datetime.now(UTC).date()  # noqa: TID251 - the broker's, which is this machine's
    assert [(row["host"], row["file"], row["line"]) for row in rows] == [
        ("web01", "/var/log/app.log", "one"),
        ("web01", "/var/log/app.log", ""),
        ("web01", "/var/log/app.log", "three"),
        ("web02", None, "\ufffd plain"),
        ("web02", "/var/log/a.log", "1"),
        ("web02", "/var/log/a.log", "2"),
        ("web02", "/var/log/b.log", "3"),
        ("web02", "/var/log/a.log", "4"),
    ]
    assert [row["number"] for row in rows] == [0, 1, 2, 0, *range(4)]
    assert all(isinstance(row["date"], date) and (today - row["date"]).days <= 1 for row in rows)
    assert (count, refused, (out / "_SUCCESS").exists()) == (8, 1, True)
    assert list(out.glob("date=*/host=web02/*.parquet"))


@pytest.mark.nats
@pytest.mark.spark
def test_lines_that_a_few_bytes_decompress_to_are_read_a_part_at_a_time(
    spark: SparkSession, logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    zstd = {"Content-Encoding": "zstd"}
    long, short = b"x" * (MAX_LINES_BYTES - 1) + b"\n", b"\n" * 1_000_000
    too_much = zstandard.compress(bytes(60 * 1024 * 1024))
    section, _ = lines_of("app.log", 0, short)
    of_long_path = replace(section, path="/" + "x" * 4000), short
    until = 1 + partition.publish(
        *[("logs.p0.web01", zstandard.compress(long), zstd)] * 20,
        message("web01", of_long_path, compressed=True),
        ("logs.p0.web01", too_much, zstd),
    )
    stage = prepare(tmp_path / "table")

    runs = Reader((logs_url,), Access(), Selection()).runs(Unit(0, 1, until))
    most = max(sum(len(piece.payload) for piece in run.pieces) for run in runs)
    count = write_table(
        spark,
        cut_evenly((0,), 1, until, 1),
        Reader((logs_url,), Access(), Selection()),
        stage / "table",
    )

    assert most < MOST_HELD + MAX_LINES_BYTES
    assert count == 20 + 1_000_000
    assert len(list(stage.glob("**/.quarantine/*"))) == 1


def test_many_small_pieces_are_few_batches_in_little_memory() -> None:
    pieces = [
        Piece(
            "web01", f"/{n % 7}" if n % 3 else "", n // 5, n, b"%d\n" % n if n % 2 else b"a\n\xc3"
        )
        for n in range(50_000)
    ]

    before, held = pa.total_allocated_bytes(), [0]

    def watched() -> Iterator[Piece]:
        for piece in pieces:
            yield piece
            held[0] = max(held[0], pa.total_allocated_bytes() - before)

    found = list(batches(watched()))

    assert held[0] < 16 * 1024 * 1024
    assert [len(batch) for batch in found] == [65_535, 9_465]
    rows = pa.Table.from_batches(found).drop(["date", "time"]).to_pylist()
    expected, numbers = [], dict[int, int]()
    for n, piece in enumerate(pieces):
        for line in [str(n)] if n % 2 else ["a", "\ufffd"]:
            number = numbers.setdefault(piece.sequence, 0)
            numbers[piece.sequence] += 1
            place = {"host": "web01", "sequence": n // 5, "number": number}
            expected.append({**place, "file": piece.file or None, "line": line})
    assert rows == expected


def test_a_large_piece_between_small_ones_stays_in_its_place() -> None:
    large = Piece("web01", "/" + "x" * 4000, 2, 2, b"\n" * 10_000)
    small = [Piece("web01", "/a", sequence, 1, b"line") for sequence in (1, 2, 3)]

    found = list(batches([small[0], large, *small[1:]]))

    assert all(batch.nbytes < 20 * 1024 * 1024 for batch in found)
    rows = [(row["sequence"], row["number"]) for batch in found for row in batch.to_pylist()]
    assert rows == [(1, 0), *((2, number) for number in range(10_001)), (3, 0)]
