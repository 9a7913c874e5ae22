"""Lines of a table are counted and joined for pages as those of the stream are."""

from pathlib import Path

from broker.inspect.old_lines import count_in_table
from nats_logship.history import Query
from tests.nats_logship.test_history import BEGAN, SECOND, Written


def test_bars_begin_at_multiples_of_their_width(tmp_path: Path) -> None:
    written = Written(tmp_path / "table")
    written.add(*(("web01", "a", second, b"x\n") for second in range(51)))

    with written.open() as history:
        found = count_in_table(history, Query(since=BEGAN, until=BEGAN + 51 * SECOND), 5 * SECOND)

    bars = {BEGAN + number * 5 * SECOND: 5 for number in range(10)} | {BEGAN + 50 * SECOND: 1}
    assert found.counts == {(time, 0): number for time, number in bars.items()}
