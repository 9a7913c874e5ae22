"""A stored message and its row. No fixtures."""

from datetime import UTC, datetime
from typing import Any

import zstandard
from pyspark.sql.pandas.types import to_arrow_schema

from broker.block import Identity, Origin, Span, encode_origin
from receiver.source.schema import Stored, columns, record_batches

TIME = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
IDENTITY = Identity(7, 5, "ab", 5, "cd")
ORIGIN = Origin("1-aa", "/var/log/ü.log", Span("f1", 10, 15), IDENTITY, 2, 99)


def rows(*messages: Stored, include_headers: bool = False) -> list[dict[str, Any]]:
    return [
        row for batch in record_batches(3, messages, include_headers) for row in batch.to_pylist()
    ]


def stored(
    headers: dict[str, str], payload: bytes, subject: str = "logs.p3.web1.example"
) -> Stored:
    return Stored(8, TIME, subject, headers, payload)


def test_the_batches_are_exactly_what_spark_makes_of_the_columns() -> None:
    for include_headers in (False, True):
        (batch,) = record_batches(3, [stored({"A": "b"}, b"x\n")], include_headers)

        assert batch.schema.equals(to_arrow_schema(columns(include_headers), timezone="UTC"))


def test_a_block_shows_its_origin() -> None:
    (row,) = rows(stored(encode_origin(ORIGIN), b"a\nbc\n"))

    assert row == {
        "partition": 3,
        "sequence": 8,
        "time": TIME,
        "subject": "logs.p3.web1.example",
        "host": "web1.example",
        "file": "/var/log/ü.log",
        "span": {"file": "f1", "start": 10, "end": 15},
        "lines": 2,
        "payload": b"a\nbc\n",
    }


def test_a_compressed_block_is_unfolded() -> None:
    headers = {**encode_origin(ORIGIN), "Content-Encoding": "zstd"}

    (row,) = rows(stored(headers, zstandard.compress(b"a\nbc\n")), include_headers=True)

    assert (row["payload"], row["lines"]) == (b"a\nbc\n", 2)
    assert ("Content-Encoding", "zstd") in row["headers"]


def test_a_foreign_message_gets_the_newline_that_it_lacks() -> None:
    (row,) = rows(stored({}, b"hello"))

    assert (row["payload"], row["lines"], row["file"], row["span"]) == (b"hello\n", 1, None, None)


def test_a_piece_of_a_long_line_gets_no_newline() -> None:
    (row,) = rows(stored(encode_origin(ORIGIN), b"abcde"))

    assert (row["payload"], row["lines"]) == (b"abcde", 0)


def test_a_claim_has_no_row() -> None:
    claim = encode_origin(Origin("1-aa", "", None, None, 0, 99))

    assert rows(stored(claim, b"")) == []


def test_a_message_that_breaks_our_rules_is_shown_as_it_was_sent() -> None:
    damaged = {**encode_origin(ORIGIN), "Content-Encoding": "zstd"}

    (row,) = rows(stored(damaged, b"no frame"))

    assert (row["payload"], row["lines"], row["file"]) == (b"no frame", None, None)


def test_a_host_that_may_not_be_one_is_none() -> None:
    (row,) = rows(stored({}, b"x\n", subject="logs.p3.../etc"))

    assert (row["host"], row["subject"]) == (None, "logs.p3.../etc")


def test_a_path_that_is_no_text_does_no_harm() -> None:
    origin = Origin("1-aa", "/var/\udcff", Span("f1", 0, 2), IDENTITY, 1, 99)

    (row,) = rows(stored(encode_origin(origin), b"x\n"))

    assert row["file"].startswith("/var/")


def test_batches_are_bounded_in_bytes() -> None:
    block = b"x" * (1024 * 1024 - 1) + b"\n"

    batches = list(record_batches(3, [stored({}, block)] * 10, False))

    assert [batch.num_rows for batch in batches] == [4, 4, 2]
