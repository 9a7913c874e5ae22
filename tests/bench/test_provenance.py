"""What was run is told by commit and by code."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.provenance import look

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(root: Path, *words: str) -> None:
    name = ("-c", "user.name=x", "-c", "user.email=x@example.net")
    subprocess.run(["git", "-C", root, *name, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-b", "main")
    for folder in ("broker", "shipper", "receiver", "pyspark_jetstream", "tests/chaos"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    return tmp_path


def test_a_commit_that_is_written_anew_has_the_same_code(repository: Path) -> None:
    before = look(repository)
    git(repository, "commit", "--amend", "-m", "one, once more")

    assert look(repository).commit != before.commit
    assert look(repository).code == before.code


def test_a_tree_with_changes_is_dirty_but_for_what_benches_write(repository: Path) -> None:
    assert not look(repository).dirty

    (repository / "README.md").write_text("")

    assert not look(repository).dirty

    (repository / "shipper/b.py").write_text("")

    assert look(repository).dirty


def test_without_a_repository_nothing_is_known(tmp_path: Path) -> None:
    found = look(tmp_path)

    assert (found.commit, found.code, found.dirty) == ("", "", False)
