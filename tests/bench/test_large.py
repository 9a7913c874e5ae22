"""A backlog of some GB is judged as a small one is, but for the names of lines that differ."""

from pathlib import Path

import pytest

from bench.large import judge_large


@pytest.mark.parametrize(
    ("received", "complete", "perfect"),
    [
        pytest.param(b"a\nb\nc\n", True, True, id="equal"),
        pytest.param(b"b\nc\na\n", True, False, id="in another order"),
        pytest.param(b"a\nb\nb\n", False, False, id="with one for another"),
        pytest.param(b"a\nb\nc", False, False, id="without its last newline"),
    ],
)
@pytest.mark.parametrize("to_be_named", [0, 100], ids=["too much to name", "little"])
def test_lines_are_judged_whether_they_fit_into_memory_or_not(
    tmp_path: Path, received: bytes, complete: bool, perfect: bool, to_be_named: int
) -> None:
    written = tmp_path / "app.log"
    written.write_bytes(b"a\nb\nc\n")
    (tmp_path / "web01.log").write_bytes(received)

    verdict = judge_large(written, tmp_path, "web01", to_be_named)

    assert (verdict.is_complete, verdict.is_perfect) == (complete, perfect)
