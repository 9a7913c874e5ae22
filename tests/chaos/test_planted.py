"""A short run finds bugs planted in a copy of the programs, and passes without one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import MUTANTS, ROOT, planted

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(900)]

# what Python imports at each start, below the product: so no change of the product makes them stale
STORED = """
import itertools, os
writev, count = os.writev, itertools.count()

def harmed(file, pieces):
    first, *others = b"".join(pieces).splitlines(True) or [b""]
    if others and "/central/out/" in os.readlink(f"/proc/self/fd/{file}"):
        harms = {
            5: [*others, first],
            10: [b"#" * (len(first) - 1), b"\\n", *others],
            15: [first[:9], b"~", first[10:], *others],
        }
        if harm := harms.get(next(count) % 16):
            pieces = [b"".join(harm)]
    return writev(file, pieces)

os.writev = harmed
"""


FOLLOWED = """
import itertools, os, time
writev, count = os.writev, itertools.count()

def harmed(file, pieces):
    written, path = writev(file, pieces), f"/proc/self/fd/{file}"
    if "/central/out/" in os.readlink(path) and next(count) % 16 == 5:
        with open(path, "r+b") as live:
            lines = live.read()
            live.truncate(0)
            time.sleep(0.2)
            live.seek(0)
            live.write(lines)
    return written

os.writev = harmed
"""
TABLED = """
import itertools, os

def harm(rows, number):
    lines = rows["line"].to_pylist()
    if number == 0:
        return rows.slice(1)
    if number == 1:
        return pa.concat_tables([rows, rows.slice(0, 1)])
    lines = lines[::-1] if number == 2 else ["~" + lines[0], *lines[1:]]
    return rows.set_column(rows.column_names.index("line"), "line", pa.array(lines))

if os.environ.get("TMPDIR", "").endswith("/table"):
    import pyarrow as pa, pyarrow.parquet as pq
    write, count = pq.ParquetWriter.write_table, itertools.count()

    def harmed(writer, rows, *arguments):
        number = next(count) % 8
        if "line" in rows.column_names and number < 4 and rows.num_rows > 9:
            rows = harm(rows, number)
        return write(writer, rows, *arguments)

    pq.ParquetWriter.write_table = harmed
"""
ALL = ("missing", "repeated", "reordered", "torn", "foreign")
HARMS = {
    "lines": (STORED, {"missing", "reordered", "foreign"}),
    "followed": (FOLLOWED, {"repeated"}),
    "tabled": (TABLED, {"missing", "repeated", "reordered", "foreign"}),
}


def chaos(
    folder: Path, faults: str, minutes: float = 0.5, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run such faults, with what is in a folder in place of the checkout."""
    options = ["--seed", "3", "--open", "--receivers", "alone", "--hosts", "2"]
    options += ["--partitions", "3", "--minutes", str(minutes)]
    program = [sys.executable, "-m", "tests.chaos", *options, "--faults", faults]
    where, env = environment.get("PYTHONPATH", ROOT), os.environ | environment
    done = subprocess.run(
        [*program, "--folder", folder], cwd=where, env=env, capture_output=True, text=True
    )
    if done.returncode == 2:
        pytest.skip(f"not on this machine: {done.stderr.strip()}")
    return done


def test_a_run_of_faults_finds_nothing_and_ends_in_a_report(tmp_path: Path) -> None:
    done = chaos(tmp_path, "kill-shipper,kill-server,kill-driver,kill-python-worker,stop-broker")

    result = json.loads((tmp_path / "3/result.json").read_text("utf-8"))
    assert (done.returncode, result["findings"]) == (0, [])
    assert sum(result["faults"].values()) > 2
    assert result["lines"]["received"] == result["lines"]["written"] > 0
    assert "passed after" in done.stdout


@pytest.mark.parametrize("oracle", HARMS)
def test_harm_to_lines_is_found_under_its_name(tmp_path: Path, oracle: str) -> None:
    code, kinds = HARMS[oracle]
    (tmp_path / "sitecustomize.py").write_text(code, "utf-8")
    shutil.copytree(ROOT / "tests", tmp_path / "tests")

    done = chaos(tmp_path / "run", "hang-up-shipper", PYTHONPATH=str(tmp_path))

    result = json.loads((tmp_path / "run/3/result.json").read_text("utf-8"))
    assert done.returncode == 1
    found = {one: {what for what in ALL if result[one][what]} for one in HARMS}
    assert found[oracle] >= kinds, result["findings"]
    assert not any(found[other] for other in {*HARMS} - {oracle})


def test_a_shipper_that_does_not_name_the_last_sequence_is_found(tmp_path: Path) -> None:
    promise = "a round names the last sequence of its subject"
    (mutant,) = (one for one in MUTANTS if one.promise == promise)
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", ".*_cache"))
    planted(mutant, copy)

    done = chaos(tmp_path / "run", "second-shipper,kill-server", PYTHONPATH=str(copy))

    assert done.returncode == 1, done.stdout


def test_a_receiver_that_syncs_nothing_is_found_by_cuts_of_power(tmp_path: Path) -> None:
    code = "import os\nos.fsync = os.fdatasync = lambda file: None\n"
    (tmp_path / "sitecustomize.py").write_text(code, "utf-8")
    shutil.copytree(ROOT / "tests", tmp_path / "tests")

    done = chaos(tmp_path / "run", "power-receiver", 1, PYTHONPATH=str(tmp_path))

    assert done.returncode == 1, done.stdout
