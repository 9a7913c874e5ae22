"""A task of a table: what it writes of a range, and what it says about it."""

import os
import pickle

import pytest

from nats_logship.app.exits import OperatorError
from nats_logship.client.access import Access
from receiver.table.plan import Range
from receiver.table.write import Broker, Written, write_range
from tests.receiver.partition import api
from tests.receiver.table.tabled import Tabled

pytestmark = pytest.mark.nats


def write(tabled: Tabled, until: int, created: str = "") -> Written:
    """Write the sequences before `until` of the stream, or of one created at another time."""
    created = created or api(tabled.url, "STREAM.INFO.LOGS")["created"]
    broker, where = Broker((tabled.url,), Access()), tabled.location
    chosen = Range("LOGS", created, 1, until)
    return write_range(chosen, broker, where.child("lines"), where.child("gaps"))


@pytest.mark.parametrize("is_purged", [False, True])
def test_what_is_missing_is_written_by_the_task_and_not_carried_to_the_driver(
    tabled: Tabled, is_purged: bool
) -> None:
    bad = {"Log-Agent": "1-1", "Log-Read-At": "x"}
    one = ("logs.p0.bad", os.urandom(2**20), bad)
    tabled.publish(*(one, ("logs.p0.x", b"1", None)) * 40)
    if is_purged:
        api(tabled.url, "STREAM.PURGE.LOGS", {"filter": "logs.p0.bad"})
    written = write(tabled, 81)

    assert len(pickle.dumps(written)) < 10_000
    assert sum(one.rows for one in written.gaps) == sum(one.rows for one in written.files) == 40
    assert max(one.size for one in written.gaps) < 20 * 2**20
    assert len(written.gaps) == (1 if is_purged else 3)


def test_a_stream_that_is_purged_while_it_is_read_is_read_on(tabled: Tabled) -> None:
    tabled.publish(*(("logs.p0.x", b"%d" % number, None) for number in range(1, 6)))
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 4})
    written = write(tabled, 6)

    assert [one.rows for one in written.files] == [2]
    assert [(row["kind"], row["first"], row["until"]) for row in written.missing] == [
        ("removed", 1, 4)
    ]


def test_a_stream_that_is_made_again_while_it_is_read_is_read_again(
    tabled: Tabled,
) -> None:
    tabled.publish_some(3)
    with pytest.raises(OperatorError, match="was created again"):
        write(tabled, 4, "2026-11-20T10:00:00Z")
