"""Pictures of results are drawn whatever was found."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.charts import draw
from bench.result import Record, Run
from tests.bench.test_resulttext import ABSENT, ALL, OURS, THEIRS, VOID


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(ALL, id="with some absent and some void"),
        pytest.param(replace(ALL, results=(OURS,)), id="of us alone"),
        pytest.param(replace(ALL, results=(ABSENT, VOID)), id="of nobody"),
        pytest.param(
            replace(
                ALL,
                results=(OURS, replace(THEIRS, runs=(Run({"MB/s": 0.0}, 0.5, "fine", True),))),
            ),
            id="with a zero",
        ),
        pytest.param(
            replace(
                ALL,
                results=(OURS, replace(THEIRS, runs=(Run({"MB/s": 0.1}, 0.5, "fine", True),))),
            ),
            id="far apart",
        ),
    ],
)
def test_a_picture_is_drawn(record: Record, tmp_path: Path) -> None:
    draw(record, tmp_path / "c.png")

    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
