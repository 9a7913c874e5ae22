"""Lines are compressed where it gains something."""

import pytest

from broker.wire.message import decode_payload
from shipper.publish.rounds import compress
from shipper.settings import Compression

LONG, SHORT = b"the same line\n" * 1000, b"one line, one line, one line\n" * 3


@pytest.mark.parametrize(
    ("mode", "compressed"),
    [("auto", [True, False]), ("zstd", [True, True]), ("none", [False, False])],
)
def test_a_mode_decides_what_is_compressed(mode: Compression, compressed: list[bool]) -> None:
    assert [compress([lines], mode)[1] for lines in (LONG, SHORT)] == compressed


def test_runs_of_lines_come_back_as_they_went_in_from_one_frame() -> None:
    frame, compressed = compress([LONG, SHORT, LONG], "auto")

    assert compressed
    assert len(frame) < len(LONG) / 10
    assert decode_payload({"Content-Encoding": "zstd"}, frame) == LONG + SHORT + LONG


def test_what_is_small_in_many_runs_is_compressed_for_what_it_is_together() -> None:
    assert compress([SHORT] * 100, "auto")[1]


def test_what_would_grow_stays_as_it_is() -> None:
    assert compress([b"x\n"], "zstd") == (b"x\n", False)
