"""Classes that were kept are used by later starts, and what does not fit is passed over without a word."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PREPARE = """
import os, sys
sys.prefix = sys.argv[1]
from receiver.spark.session import prepare
from receiver.spark.java import find_java
print(prepare(find_java(os.environ)))
"""
START = """
import sys
sys.prefix = sys.argv[1]
from pathlib import Path
from receiver.spark.session import spark_context
with spark_context("local[1]") as spark:
    print(spark.parallelize([1], 1).map(lambda n: n + 1).collect())
    print(Path(f"/proc/{spark._gateway.proc.pid}/maps").read_text())
"""


def run(script: str, prefix: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script, str(prefix)],
        capture_output=True,
        text=True,
        check=True,
        timeout=330,
    )


@pytest.mark.long
def test_classes_are_kept_once_and_used_by_the_next_start(tmp_path: Path) -> None:
    path = Path(run(PREPARE, tmp_path).stdout.strip())
    second = run(START, tmp_path)

    assert [*path.parent.iterdir()] == [path]
    assert path.is_relative_to(tmp_path)
    assert second.stdout.startswith("[2]\n")
    assert str(path) in second.stdout
    assert second.stderr == ""
