"""The options of the data source, and the rows of stored messages. No fixtures."""

import itertools
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.sql.pandas.types import to_arrow_schema

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import EARLIEST, LATEST
from nats_logship.wire.message import Identity, Origin, Section, Span, encode_origin
from nats_logship.wire.stream_message import StreamMessage
from pyspark_jetstream.options import SourceOptions, columns
from pyspark_jetstream.rows import record_batches

AS_STORED = 1_795_176_000_123_456_789
TIME = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
IDENTITY = Identity(7, 5, "ab", 5, "cd")
ORIGIN = Origin("1-aa", 99, (Section("/var/log/ü.log", Span("f1", 10, 15), 5, 2, IDENTITY),))


def rows(*messages: StreamMessage, explode: bool = False) -> list[dict[str, Any]]:
    show = SourceOptions(headers=False, explode=explode)
    return [row for batch in record_batches(messages, show) for row in batch.to_pylist()]


def stored(
    headers: dict[str, str], payload: bytes, subject: str = "logs.p3.web1.example"
) -> StreamMessage:
    return StreamMessage(subject, 8, AS_STORED, headers, payload)


def test_the_batches_have_the_arrow_schema_of_the_columns() -> None:
    for flags in itertools.product((False, True), repeat=2):
        show = SourceOptions(**dict(zip(("headers", "explode"), flags, strict=True)))
        (batch,) = record_batches([stored({"A": "b"}, b"x\n")], show)

        assert batch.schema.equals(to_arrow_schema(columns(show), timezone="UTC"))


def test_a_message_of_one_file_is_a_row_with_its_path() -> None:
    (row,) = rows(stored(encode_origin(ORIGIN), b"a\nbc\n"))

    assert row == {
        **{"partition": 3, "sequence": 8, "time": TIME, "subject": "logs.p3.web1.example"},
        **{"host": "web1.example", "file": "/var/log/ü.log", "section": 0},
        **{"span": {"file": "f1", "start": 10, "end": 15}, "lines": 2, "payload": b"a\nbc\n"},
    }


def test_texts_that_are_not_utf_8_are_shown_with_replacements() -> None:
    headers = encode_origin(Origin("1-aa", 99, (Section("/\udcff", Span("f", 0, 2), 2, 1),)))
    message = stored({**headers, "A": "\udcfe"}, b"x\n", "other.\udcfd")

    (row,) = next(record_batches([message], SourceOptions())).to_pylist()

    assert (row["file"], row["subject"], dict(row["headers"])["A"]) == ("/�", "other.�", "�")


def lines(*messages: StreamMessage) -> list[tuple[Any, ...]]:
    found = rows(*messages, explode=True)
    return [(row["sequence"], row["host"], row["pos"], row["line"]) for row in found]


@pytest.mark.parametrize(
    ("named", "payload", "records"),
    [
        ("start:^[a-z]", b" rest\na\n 1\nb\n", [None, 6, 6, 8]),
        ("end:F$", b"P\nF\nF\nP\n", [5, 5, 7, 8]),
        (r"start:^\S+ std", b"1 stdout P a\n1 stdout F b\n1 stderr F c\n", [5, 5, 7]),
        (r"start:^[\xff]\Z", b"\xff\n\xff1\n\xff\n", [5, 5, 7]),
        ("", b"a\nb\n", [5, 6]),
        ("start:(", b"a\nb\n", [5, 6]),
        ("begin:a", b"a\nb\n", [5, 6]),
        ("start:a{1000}b{1000}", b"a\nb\n", [5, 6]),
    ],
)
def test_lines_have_the_number_of_their_records_first_line(
    named: str, payload: bytes, records: list[int | None]
) -> None:
    first = Section("/var/log/a.log", Span("f1", 0, 10), 10, 5)
    count = payload.count(b"\n")
    section = Section("/b", Span("f2", 0, len(payload)), len(payload), count, records=named)
    message = stored(encode_origin(Origin("1-aa", 99, (first, section))), b"a\n" * 5 + payload)

    found = [row["record"] for row in rows(message, explode=True)]
    assert found == [*range(5), *records]


def test_pieces_of_lines_are_marked() -> None:
    sections = [Section("/a", Span("f1", 0, 7), 7, 1), Section("/b", Span("f2", 0, 2), 2, 1)]
    whole = stored(encode_origin(Origin("1-aa", 99, tuple(sections))), b"one\ntwob\n")

    found = rows(whole, stored({}, b"plain"), explode=True)

    assert [(row["line"], row["piece"]) for row in found] == [
        *(("one", False), ("two", True), ("b", False), ("plain", False))
    ]


def test_a_large_message_is_several_batches_with_continuous_numbers() -> None:
    payload = b"".join(b"%07d\n" % n for n in range(2**20)) * 2

    message = stored({"Content-Encoding": "zstd"}, zstandard.compress(payload))
    found = list(record_batches([message], SourceOptions(headers=False, explode=True)))

    assert max(batch.nbytes for batch in found) < 32 * 1024 * 1024
    assert len(found) > 4
    assert [n for batch in found for n in batch["pos"].to_pylist()] == list(range(2**21))
    texts = [text for batch in found for text in batch["line"].to_pylist()]
    assert texts == payload.decode().splitlines()


def test_a_damaged_message_is_one_row_without_a_line() -> None:
    damaged = {**encode_origin(ORIGIN), "Content-Encoding": "zstd"}
    (row,) = rows(stored(encode_origin(ORIGIN), b"a\nbc\nmore\n"))  # of other sections
    host = "web1.example"

    found = lines(stored({}, b"a\nb\n"), stored(damaged, b"no\nframe\n"), stored({}, b"c\n"))

    assert (row["payload"], row["lines"], row["file"]) == (b"a\nbc\nmore\n", None, None)
    assert found == [(8, host, 0, "a"), (8, host, 1, "b"), (8, host, 0, None), (8, host, 0, "c")]


def test_lines_equal_those_of_a_plain_split() -> None:
    chance = random.Random(4)
    payloads = [bytes(chance.choices(b"ab\n\r", k=chance.randrange(30))) for _ in range(200)]
    blocks = [
        StreamMessage("logs.p0.web", n, AS_STORED, {}, payload)
        for n, payload in enumerate(payloads)
    ]

    assert [(row[0], row[2], row[3]) for row in lines(*blocks)] == [
        (n, pos, line.decode())
        for n, payload in enumerate(payloads)
        if payload
        for pos, line in enumerate(payload.removesuffix(b"\n").split(b"\n"))
    ]


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        ({"startingOffsets": "Earliest"}, {"starting": EARLIEST}),
        ({"startingOffsets": "latest"}, {"starting": LATEST}),
        ({"startingOffsets": "123"}, {"starting": 123}),
        ({"startingTimestamp": "1795176000000"}, {"starting": NOON}),
        ({"startingTimestamp": "2026-11-20T13:00:00+01:00"}, {"starting": NOON}),
        ({"startingTimestamp": "2026-11-20T12:00:00"}, {"starting": NOON}),
        ({"startingTimestamp": str(NOON), "startingOffsets": "latest"}, {"starting": NOON}),
        ({"partitions": "all"}, {"subjects": None}),
        ({"partitions": "3, 0,3"}, {"subjects": ("logs.p0.>", "logs.p3.>")}),
        ({"hosts": "a, db.example,a"}, {"subjects": ("logs.*.a", "logs.*.db.example")}),
        ({}, {"headers": True, "starting": None, "subjects": None}),
        ({"explode": "true"}, {"headers": False}),
        ({"explode": "true", "includeHeaders": "true"}, {"headers": True}),
    ],
)
def test_options_mean_what_kafkas_mean(given: dict[str, str], meaning: dict[str, object]) -> None:
    options = SourceOptions.parse(given)

    assert {name: getattr(options, name) for name in meaning} == meaning


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"server": "x"}, "no option 'server'; it has servers, stream, partitions"),
        ({"stream": "a.b"}, "stream 'a.b' is not the name"),
        ({"partitions": "1,x"}, "partitions '1,x' is not"),
        ({"startingOffsets": "first"}, "startingOffsets 'first' is not"),
        ({"startingOffsets": "0"}, "startingOffsets '0' is not"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp 'yesterday' is not"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger '0' is not a positive"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "is not a positive"),
        ({"hosts": "a", "partitions": "1"}, "partitions and hosts both choose"),
        ({"hosts": "web*"}, r"hosts: host name 'web\*' holds"),
        ({"hosts": "web,"}, "hosts: host name '' is empty"),
        ({"servers": "http://me:s3cret@x"}, "servers: 'x' is not the address of a NATS server"),
        ({"servers": "nats://me:a://b@x"}, "servers: 'x' is not the address of a NATS server"),
        ({"pushDown": "on"}, "pushDown 'on' is not true or false"),
        ({"explode": "yes"}, "explode 'yes' is not true or false"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        SourceOptions.parse(given)


def test_credentials_are_options_and_never_shown() -> None:
    given = {"user": "central", "password": " s3cret", "tlsCa": "/etc/ca.pem", "tlsFirst": "true"}
    options = SourceOptions.parse({"servers": "tls://me:s3cret@broker:4222", **given})

    assert (options.access.user, options.access.password) == ("central", " s3cret")
    assert (options.access.tls_ca, options.access.tls_first) == (Path("/etc/ca.pem"), True)
    assert "s3cret" not in repr(options)
