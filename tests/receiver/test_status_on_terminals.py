"""The tables of the state, on wide and on narrow terminals."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.receiver.partition import Partition
from tests.support.processes import installed
from tests.support.terminal import run_on_terminal

pytestmark = pytest.mark.nats
WIDTHS = 50, 80, 400

RECEIVED = "partition behind oldest running owner", "bytes epoch offset lines"
STREAMED = "partition behind oldest owner", "epoch"
HOSTS = "host silent", "messages last seen"


@pytest.mark.parametrize(
    ("command", "heads"),
    [
        (("logreceiver", "status"), RECEIVED),
        (("logbroker", "status"), STREAMED),
        (("logbroker", "hosts"), HOSTS),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_every_name_is_whole(
    partition: Partition, command: Sequence[str], heads: tuple[str, str]
) -> None:
    for number in range(3):
        partition.lines(f"web{number}.example.net", b"line\n" * 1000)
    program, *words = command

    shown = dict[int, str]()
    for columns in WIDTHS:
        asking = [installed(program), *words, "--server", partition.url]
        code, written = run_on_terminal(asking, columns=columns)
        assert code == 0, written
        shown[columns] = re.sub(r"\x1b\[\d*m", "", written)

    kept, left_out = (set(one.split()) for one in heads)
    assert (kept | left_out) <= set(shown[400].split())
    for columns in WIDTHS[:-1]:
        head = next(line for line in shown[columns].split("\n") if line.startswith(heads[0][:4]))
        assert kept <= set(head.split())
    assert "in a wider terminal, or with --json" in shown[50]
    assert "in a wider terminal" not in shown[400]


def test_a_folder_that_is_not_there_is_named(partition: Partition, tmp_path: Path) -> None:
    asking = [installed("logreceiver"), "status", "--server", partition.url, "--output", "nope"]

    shown = subprocess.run(asking, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "there is no nope/.logreceiver, so no files are shown; see --output" in shown
