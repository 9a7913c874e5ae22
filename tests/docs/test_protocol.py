"""The examples of docs/protocol.md are what our own code reads and computes."""

import hashlib
import re
from pathlib import Path

import pytest

from nats_logship.wire.interval import (
    INTERVAL_EXPIRES,
    INTERVAL_RENEWED,
    INTERVAL_SUBJECT,
    MAX_INTERVAL,
    format_interval,
    parse_interval,
)
from nats_logship.wire.message import (
    ALWAYS_BYTES,
    MAX_ID_BYTES,
    MAX_LINES_BYTES,
    MAX_PATH_BYTES,
    MAX_RATIO,
    MAX_SPANS_BYTES,
    decode_origin,
    encode_origin,
)
from nats_logship.wire.pause import PAUSE_SUBJECT, decode_pauses, encode_pauses
from nats_logship.wire.positions import Positions
from nats_logship.wire.records import MAX_RECORDS_BYTES
from nats_logship.wire.streams import positions_key
from nats_logship.wire.subjects import partition_of
from receiver.consume.judging import read_expected_sequence

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
TEXT = PAGE.read_text("utf-8")


def rows(head: str) -> list[list[str]]:
    """Return the cells of the table with a head, without marks of code."""
    _, _, behind = TEXT.partition(f"{head}\n")
    table = behind.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]


def code(number: int) -> str:
    """Return a block of code; the page wraps long lines and indents the rest of them."""
    return TEXT.split("```")[number].strip().replace("\n  ", "")


def example() -> dict[str, str]:
    return dict(line.split(": ", 1) for line in code(1).splitlines())


def test_the_example_is_read_and_written_as_it_is() -> None:
    headers = example()

    origin = decode_origin(headers)

    assert origin is not None
    assert (origin.size, origin.lines) == (37, 3)
    paths = [section.path for section in origin.sections]
    assert paths == ["/var/log/app.log", "journal:/100% é"]
    assert [section.unit for section in origin.sections] == ["bytes", "entries"]
    assert [section.filtered for section in origin.sections] == [False, True]
    assert origin.sections[1].identity is not None
    assert read_expected_sequence(headers) == 41
    assert encode_origin(origin).items() <= headers.items()


def test_the_snapshot_is_read_and_written_as_it_is() -> None:
    text = code(5)

    positions = Positions.decode(text.encode())

    assert positions.covered["LOGS_2"].sequence == 42
    assert positions.files["1790000000000-5f3a9c01.1"].offset == 4120
    assert positions.encode().decode() == text
    named = {name.strip(" `") for row in rows("| name | value |") for name in row[0].split(",")}
    assert set(re.findall(r'"([a-z]+)":', text)) == named


def test_the_pause_is_read_and_written_as_it_is() -> None:
    text = code(3)

    (pause,) = decode_pauses(text.encode())

    assert (pause.hosts, pause.reason) == ("web*", "disk is swapped")
    assert encode_pauses([pause]).decode() == text
    assert f"subscribe to `{PAUSE_SUBJECT}` with core NATS" in " ".join(TEXT.split())


def test_the_interval_of_rounds_is_as_the_page_says() -> None:
    text = " ".join(TEXT.split())

    assert f"subscribe to `{INTERVAL_SUBJECT}`. It is written again each minute" in text
    assert f"0 to {MAX_INTERVAL} (`0.5`); ignore other values" in text
    assert (INTERVAL_RENEWED, INTERVAL_EXPIRES) == (60, 180)
    assert [parse_interval(one) for one in (b"0.5", b"60", b"60.001")] == [0.5, 60.0, None]
    assert format_interval(0.5) == b"0.5"


@pytest.mark.parametrize("host", ["web01", "a" * 200, "a" * 201, "db.example.net", "münchen"])
def test_the_key_of_a_snapshot_is_as_the_page_says(host: str) -> None:
    is_plain = re.fullmatch(r"[A-Za-z0-9_-]{1,200}", host)

    key = host if is_plain else f"={hashlib.sha256(host.encode()).hexdigest()[:32]}"

    assert positions_key(host) == key


def test_every_key_of_the_example_is_explained() -> None:
    keys = {key.strip(" `") for row in rows("| key | value |") for key in row[0].split(",")}
    headers = {row[0] for row in rows("| header | value |")}

    assert set(re.findall(r'"([a-z]+)":', example()["Log-Spans"])) == keys
    assert example().keys() <= headers


def test_the_worked_hash_is_right_byte_by_byte() -> None:
    digest = 0x811C9DC5
    ((_, *hashes),) = rows("| byte of `web01` | `w` | `e` | `b` | `0` | `1` |")
    for byte, after in zip(b"web01", hashes, strict=True):
        digest = ((digest ^ byte) * 0x01000193) % 2**32
        assert int(after, 16) == digest


def test_the_vectors_are_the_partitions_of_their_hosts() -> None:
    vectors = rows("| host | hash | of 10 partitions | of 16 |")

    assert len(vectors) == 2
    for host, digest, of_ten, of_sixteen in vectors:
        assert partition_of(host, 2**32) == int(digest, 16)
        assert (partition_of(host, 10), partition_of(host, 16)) == (int(of_ten), int(of_sixteen))


def test_the_limits_are_those_of_the_code() -> None:
    limits = dict(rows("| what | at most |"))

    assert limits["decompressed lines of a message"] == f"{MAX_LINES_BYTES // 2**20} MiB"
    of_a_frame = limits["… of a compressed payload of N bytes"]
    assert of_a_frame.startswith(f"{MAX_RATIO} N, or {ALWAYS_BYTES // 2**10} KiB")
    assert limits["Log-Spans"].startswith(f"{MAX_SPANS_BYTES:,} bytes")
    assert limits["agent id, file id"].startswith(f"1 to {MAX_ID_BYTES} ")
    assert f"percent-encoded; at most {MAX_RECORDS_BYTES} bytes decoded;" in PAGE.read_text()
    assert limits["path, decoded"] == f"{MAX_PATH_BYTES} bytes"
