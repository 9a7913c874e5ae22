"""Lines of a table are counted and joined for pages as those of the stream are."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from broker.inspect.old_lines import TableSearch, run
from broker.inspect.windows import WindowFound
from nats_logship import table_steps
from nats_logship.app.exits import OperatorError
from nats_logship.history import History, Order, Query
from tests.nats_logship.test_history import BEGAN, SECOND, Written


def test_bars_begin_at_multiples_of_their_width(tmp_path: Path) -> None:
    written = Written(tmp_path / "table")
    written.add(*(("web01", "a", second, b"x\n") for second in range(51)))

    with written.open() as history:
        query = Query(since=BEGAN, until=BEGAN + 51 * SECOND)
        found, *more = TableSearch(history, query, Order.NEWEST, 5 * SECOND).count()

    bars = {BEGAN + number * 5 * SECOND: 5 for number in range(10)} | {BEGAN + 50 * SECOND: 1}
    assert not more
    assert found.counts == {(time, 0): number for time, number in bars.items()}


async def test_a_search_that_takes_too_long_shows_what_it_has_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_steps, "_STEP_BYTES", 1)
    written = Written(tmp_path / "table")
    for second in range(3):
        written.add(("web01", "a", second, b"line %d\n" % second))

    def search_slowly(history: History) -> Iterator[WindowFound]:
        for found in TableSearch(history, Query(), Order.NEWEST, SECOND).find_older(9):
            yield found
            sleep(1.5)

    shown = list[bytes]()
    with written.open(seconds=1.0) as history:
        with pytest.raises(OperatorError, match="ended at 2026-11-18T11:06:41"):  # noqa: PT012
            async for _, found in run(history, search_slowly(history)):
                shown += [one.line for one in found.lines]
        assert history.progress.until
    assert shown == [b"line 2"]


async def test_a_reader_that_is_slower_than_a_search_gets_all_of_it(tmp_path: Path) -> None:
    def search() -> Iterator[WindowFound]:
        for number in range(3):
            yield WindowFound(counts=Counter({(number, 0): 1}))
            sleep(0.2)

    shown = Counter[tuple[int, int]]()
    with Written(tmp_path / "table").open() as history:
        async for _, found in run(history, search()):
            shown += found.counts
            await asyncio.sleep(0.8)
    assert shown == {(0, 0): 1, (1, 0): 1, (2, 0): 1}
