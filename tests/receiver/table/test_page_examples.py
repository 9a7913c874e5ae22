"""The examples of docs/tables.md run as they are, except for the folder."""

import re
from pathlib import Path

import pytest

from tests.receiver.table.tabled import Tabled

PAGE = (Path(__file__).parents[3] / "docs/tables.md").read_text("utf-8")

pytestmark = [pytest.mark.nats, pytest.mark.spark]


@pytest.mark.usefixtures("spark")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_example_reads_the_table(tabled: Tabled, capsys: pytest.CaptureFixture[str]) -> None:
    tabled.publish(tabled.ship("web01", "a", b"ERROR number 17\n[error] x\nfine\n"))
    tabled.write()
    names: dict[str, object] = {}
    outputs = []
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(text.replace("/srv/logs/table", tabled.location.uri), names)
        outputs.append(capsys.readouterr().out)

    by_duckdb, content, by_polars, by_pandas, by_spark = outputs
    assert re.search(r"web01 +│ .* │ +2 │", by_duckdb)
    assert content.rstrip() == repr(b"ERROR number 17\n[error] x\nfine\n")
    assert "ERROR number #" in by_polars
    assert [line.split(maxsplit=1)[1] for line in by_pandas.splitlines()] == [
        "ERROR number 17",
        "[error] x",
        "fine",
    ]
    assert re.search(r"\| *web01\| +2\|", by_spark)
