from pathlib import Path

import pytest

from broker.exits import OperatorError
from broker.whole import write_whole


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "conf"
    write_whole(path, "before")
    (tmp_path / "conf.tmp").mkdir()

    with pytest.raises(OperatorError, match="cannot write"):
        write_whole(path, "after")

    assert path.read_text("utf-8") == "before"


def test_a_secret_is_never_open_to_others_also_where_a_crash_left_an_open_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret.tmp").write_text("half")
    (tmp_path / "secret.tmp").chmod(0o666)

    write_whole(tmp_path / "secret", b"whole", 0o600)

    assert (tmp_path / "secret").read_bytes() == b"whole"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
