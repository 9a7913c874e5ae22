"""What was run is told by commit and by code."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.provenance import known_to, look

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


def test_a_commit_is_known_and_so_is_its_code_after_a_rebase(repository: Path) -> None:
    (repository / "broker/a.py").write_text("2\n")
    git(repository, "commit", "-am", "two")
    before = look(repository)
    git(repository, "commit", "--amend", "-m", "two, once more")

    commits, codes = known_to(repository)

    assert (before.commit in commits, before.code in codes) == (False, True)
    assert look(repository).commit in commits


def test_code_of_another_line_is_unknown(repository: Path) -> None:
    (repository / "broker/a.py").write_text("3\n")
    git(repository, "commit", "-am", "three")
    elsewhere = look(repository)
    git(repository, "reset", "--hard", "HEAD~1")

    commits, codes = known_to(repository)

    assert (elsewhere.commit in commits, elsewhere.code in codes) == (False, False)


def test_a_tree_with_changes_is_dirty_but_for_the_record_itself(repository: Path) -> None:
    assert not look(repository).dirty

    (repository / "tests/chaos/record.jsonl").write_text("{}\n")

    assert not look(repository).dirty

    (repository / "shipper/b.py").write_text("")

    assert look(repository).dirty


def test_without_a_repository_nothing_is_known(tmp_path: Path) -> None:
    found = look(tmp_path)

    assert (found.commit, found.code, found.dirty) == ("", "", False)
