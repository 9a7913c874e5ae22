"""The durable consumer delivers all messages in order, even if another client disturbs it."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.pulling import pull
from receiver.consume import task
from receiver.consume.assignment import Cause, SessionLimits, Superseded
from receiver.consume.fetch import consumer_config
from receiver.consume.reader import PartitionReader
from receiver.consume.task_end import TaskEnd
from tests.receiver.partition import ONE_BATCH, Partition, api, blocked
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def sequences(partition: Partition, first: int = 1) -> list[int]:
    connection = background.connection((partition.url,))
    with PartitionReader(
        connection, partition.assignment(), first, "LOGS", TaskEnd(ONE_BATCH)
    ) as reading:
        return [delivery.sequence for pull in reading.pull_batch() for delivery, _ in pull]


@pytest.mark.parametrize("renew", [False, True])
def test_a_consumer_that_does_not_answer_is_made_again(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, *, renew: bool
) -> None:
    partition.lines("web01", b"1\n")
    connection = background.connection((partition.url,))
    api, is_well = connection.api, False

    async def answer(call: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        nonlocal is_well
        is_well |= call == "CONSUMER.DELETE.LOGS.receiver-p0"
        if call == "CONSUMER.INFO.LOGS.receiver-p0" and not is_well:
            raise ConnectionLost("no answer in 5 s")
        return await api(call, *arguments, **options)

    monkeypatch.setattr(connection, "api", answer)
    wanted = replace(partition.assignment(), renew=renew)
    with PartitionReader(connection, wanted, 1, "LOGS", TaskEnd(ONE_BATCH)) as reading:
        if renew:
            assert len(next(reading.pull_batch())) == 1
        else:
            with pytest.raises(ConnectionLost, match="no answer"):
                next(reading.pull_batch())


def waiting(partition: Partition) -> int:
    """Return how many requests wait at the consumer; 0 if there is none."""
    with suppress(Rejected):
        return int(api(partition.url, "CONSUMER.INFO.LOGS.receiver-p0")["num_waiting"])
    return 0


def test_an_owner_that_was_replaced_does_not_take_the_consumer_away_from_the_new_one(
    partition: Partition, tmp_path: Path
) -> None:
    state = lambda: api(partition.url, "CONSUMER.INFO.LOGS.receiver-p0")  # noqa: E731
    other = partition.with_folder(tmp_path / "other")
    with partition.long_session(commit_every=6.0) as old:
        wait_until("it waits", lambda: waiting(partition) == 1, 20)
        partition.lines("web01", b"1")
        wait_until("it has come", lambda: state()["num_ack_pending"] == 1, 20)
        offset = other.take_over("host:2")
        with other.long_session(offset.next, epoch=offset.epoch):
            # the line is delivered to the old owner's request again
            wait_until("it is reset", lambda: state()["delivered"]["consumer_seq"] == 1, 20)
            time.sleep(1.0)
            partition.lines("web01", b"2")
            other.wait_until_committed(3)

        assert isinstance(old.result(30).outcome, Superseded)
    assert other.live.read_bytes() == b"1\n2\n"


def configure(partition: Partition, **change: object) -> None:
    config = {**consumer_config(0), **change}
    name = f"CONSUMER.CREATE.LOGS.receiver-p0.{config['filter_subject']}"
    partition.ask(lambda c: c.api(name, {"stream_name": "LOGS", "config": config}))


@pytest.mark.parametrize("taken", [4, 12])
def test_another_client_of_the_consumer_costs_no_line(partition: Partition, taken: int) -> None:
    partition.lines("web01", *(b"%d" % n for n in range(8)))
    assert len(sequences(partition)) == 8
    partition.lines("web01", *(b"%d" % n for n in range(20)))
    partition.ask(lambda c: c.api("CONSUMER.RESET.LOGS.receiver-p0", {"seq": 1}))
    partition.ask(lambda c: pull(c, "LOGS.receiver-p0", taken, 10_000_000))

    assert sequences(partition, 9) == list(range(9, 29))


@pytest.mark.parametrize(
    ("name", "value"),
    [("filter_subject", "logs.p0.web01"), ("pause_until", "2100-01-01T00:00:00Z")],
)
def test_a_consumer_that_leaves_lines_out_blocks(
    partition: Partition, name: str, value: str
) -> None:
    partition.lines("web01", b"1")
    configure(partition, **{name: value})

    for renew in (False, True):
        wanted = replace(partition.assignment(), renew=renew)
        (report,) = task.run_sessions([wanted], partition.destination)
        blocked(report.outcome, Cause.BROKER, "delete it")
    assert partition.files() == {}


def test_a_consumer_changed_to_headers_only_is_noticed(partition: Partition) -> None:
    partition.lines("web01", b"1\n")
    connection = background.connection((partition.url,))
    end = TaskEnd(ONE_BATCH)
    with PartitionReader(connection, partition.assignment(), 1, "LOGS", end) as reading:
        assert len(list(reading.pull_batch())) == 1
        configure(partition, headers_only=True)
        partition.lines("web01", b"2\n", b"3\n")

        with pytest.raises(ConnectionLost, match=r"headers_only.*delete it"):
            list(reading.pull_batch())


def test_a_batch_ends_though_the_messages_behind_it_were_removed(partition: Partition) -> None:
    configure(partition)
    partition.lines("web01", *(b"%1000d" % n for n in range(4)))
    session = SessionLimits(60, 60, commit_every=0.1)
    wanted = replace(partition.assignment(session=session), pull=2500)  # two messages
    connection = background.connection((partition.url,))
    end = TaskEnd(session)
    with PartitionReader(connection, wanted, 1, "LOGS", end) as reading:

        def has_pulled() -> bool:
            state = api(partition.url, "CONSUMER.INFO.LOGS.receiver-p0")
            return (state["delivered"]["stream_seq"], state["num_waiting"]) == (2, 0)

        wait_until("the first pull has ended", has_pulled, 30)
        api(partition.url, "STREAM.PURGE.LOGS", {"filter": "logs.p0.>"})
        too_late = Timer(20, end.ask)
        too_late.start()
        batch = [delivery for pull in reading.pull_batch() for delivery, _ in pull]
        too_late.cancel()

        assert [(one.sequence, one.pending) for one in batch] == [(1, 3), (2, 2)]
        assert not end.is_asked
        assert partition.lines("web01", b"1\n") == 5
        assert [one.sequence for one, _ in next(reading.pull_batch())] == [5]
