"""The note of the batch that was begun: a regular file of ours, or none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.consume.attempts import Attempts


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_a_note_that_is_a_pipe_or_a_link_is_refused_by_name(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    put(tmp_path / "p0.attempt")

    with pytest.raises(OSError, match="symbolic link or no regular file; move it away") as refused:
        Attempts(tmp_path / "p0.attempt", "one", 1)

    assert refused.value.filename == str(tmp_path / "p0.attempt")
    assert not (tmp_path / "elsewhere").exists()
