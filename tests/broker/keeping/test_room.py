"""The keeper of room with a real server: what it takes out of a stream that is full, and what it leaves."""

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from broker.keeping.room import RoomKeeper
from broker.keeping.room_drops import NAME
from broker.provision.repartition import change_partitions
from broker.wire.streams import STREAM
from tests.broker.keeping.conftest import Stream
from tests.raw import Raw

ONE, OTHER, THIRD = "logs.p0.web01", "logs.p0.web02", "logs.p1.db"


def test_nothing_goes_while_there_is_room(stream: Stream) -> None:
    last = stream.fill(ONE, most=10)[-1]
    stream.commit(0, last + 1)

    keeper = stream.look()

    assert len(stream.sequences()) == 10
    assert keeper.report.purged_messages == 0
    assert keeper.report.short_since is None


def test_received_messages_go_oldest_first_and_no_more_than_must(stream: Stream) -> None:
    there = stream.fill(ONE, OTHER)
    stream.commit(0, there[-1] + 1)

    keeper = stream.look()

    left = stream.sequences()
    assert left == there[-len(left) :]
    assert 0.4 < stream.info()["state"]["bytes"] / 1_000_000 < 0.5
    assert keeper.report.purged_messages == len(there) - len(left)
    assert keeper.report.dropped_messages == 0
    assert not keeper.report.waits


def test_what_is_not_received_stays_and_hosts_wait(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    there = stream.fill(ONE, THIRD)
    stream.commit(0, there[5] + 1)

    keeper = stream.look(3)

    left = stream.sequences()
    assert set(there) - set(left) == {n for n in there[:4] if n % 2}
    assert keeper.report.waits
    assert keeper.report.dropped_messages == 0
    assert caplog.text.count("hosts wait") == 1
    assert "partitions 0, 1" in caplog.text


def test_a_stream_that_discards_old_says_that_unreceived_lines_go_and_counts_them(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    config = stream.info()["config"] | {"discard": "old"}
    stream.ask(lambda connection: connection.api(f"STREAM.UPDATE.{STREAM}", config))
    stream.commit(0, stream.fill(ONE, most=5)[-1] + 1)

    keeper = stream.look(3, between=lambda: stream.fill(THIRD, most=60))

    there = 5 + 2 * 60
    assert keeper.report.loses_oldest
    assert keeper.report.dropped_messages == there - len(stream.sequences()) - (
        keeper.report.purged_messages
    )
    assert caplog.text.count("nats-server removes the oldest lines") == 1
    assert "hosts wait" not in caplog.text.replace("have hosts wait by", "")


def test_of_half_the_partitions_with_receivers_theirs_go_and_the_others_stay(
    stream: Stream,
) -> None:
    there = stream.fill(ONE, THIRD)
    stream.commit(0, there[-1] + 1)

    keeper = stream.look(2)

    assert stream.sequences(THIRD) == [n for n in there if n % 2 == 0]
    assert stream.sequences(ONE) == [n for n in there if n % 2][-1:]
    assert keeper.report.dropped_messages == 0


def test_a_host_with_a_new_file_in_each_message_makes_nobody_wait(stream: Stream) -> None:
    for number in range(40):
        stream.publish(OTHER, f"file-{number}")
    there = stream.fill(ONE)
    stream.commit(0, there[-1] + 1)

    keeper = stream.look(2)

    assert not keeper.report.waits
    assert len(stream.fill(ONE)) > 20


@pytest.mark.parametrize("size", ["²", "9" * 5000, "99999999999999"])
def test_a_size_that_a_client_made_up_harms_nothing(stream: Stream, size: str) -> None:
    head = f"NATS/1.0\r\nNats-Msg-Size: {size}\r\nFoo: xx".encode()
    told = urlsplit(stream.url)
    with Raw(told.port or 0, told.username or "", told.password or "") as client:
        client.say(b"HPUB %s %d %d\r\n%sx\n\r\n" % (OTHER.encode(), len(head), len(head) + 2, head))
    there = stream.fill(ONE)
    assert there[0] == 2
    stream.commit(0, there[-1] + 1)

    stream.look()

    assert 0.4 < stream.info()["state"]["bytes"] / 1_000_000 < 0.5


def test_of_a_host_that_sends_nothing_any_more_the_last_message_stays(stream: Stream) -> None:
    stream.publish(OTHER)
    silent = stream.publish(OTHER)
    there = stream.fill(ONE)
    stream.commit(0, there[-1] + 1)

    stream.look()

    assert stream.sequences(OTHER) == [silent]


def test_a_durable_consumer_keeps_what_it_has_not_acknowledged(stream: Stream) -> None:
    there = stream.fill(ONE)
    stream.commit(0, there[-1] + 1)
    body = {"stream_name": STREAM, "config": {"durable_name": "audit", "ack_policy": "explicit"}}
    stream.ask(lambda connection: connection.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.audit", body))

    assert stream.look().report.waits
    assert stream.sequences() == there

    stream.ask(lambda connection: connection.api(f"CONSUMER.DELETE.{STREAM}.audit"))

    assert not stream.look().report.waits
    assert len(stream.sequences()) < len(there)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"stream_created": "2020-01-01T00:00:00Z"}, id="of another stream"),
        pytest.param({"last_time": ""}, id="set by hand"),
        pytest.param({"last_time": "2020-01-01T00:00:00.000Z"}, id="of numbers given out before"),
    ],
)
def test_an_offset_that_says_nothing_of_this_stream_lets_nothing_go(
    stream: Stream, changes: dict[str, Any]
) -> None:
    there = stream.fill(ONE)
    stream.commit(0, there[-1] + 1, **changes)

    keeper = stream.look()

    assert stream.sequences() == there
    assert keeper.report.waits


def test_hosts_go_on_when_receivers_have_more(stream: Stream) -> None:
    there = stream.fill(ONE)
    stream.look()
    stream.commit(0, there[-1] + 1)

    keeper = stream.look()

    assert not keeper.report.waits
    assert len(stream.fill(ONE)) > len(there) // 3


def test_partitions_that_hosts_have_left_are_made_room_in_and_named_like_the_others(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    there = stream.fill(ONE, THIRD)
    stream.ask(lambda connection: change_partitions(connection, 1))
    stream.commit(0, there[-1] + 1)

    waiting = stream.look(2)

    assert waiting.report.waits
    assert "behind are partitions 0, 1" in caplog.text
    assert stream.sequences(THIRD) == [n for n in there if n % 2 == 0]
    stream.commit(1, there[-1] + 1)
    assert not stream.look().report.waits


def test_two_keepers_at_once_leave_the_newest(stream: Stream) -> None:
    stream.publish(ONE, "rotated")
    there = stream.fill(ONE, OTHER)
    stream.commit(0, there[-1] + 1)

    async def both(connection: Any) -> None:
        keepers = [
            RoomKeeper(connection, stream.folder, "one", lambda: stream.policy, time.time_ns)
            for _ in range(2)
        ]
        await asyncio.gather(*(keeper.look() for keeper in keepers))

    stream.ask(both)

    left = stream.sequences()
    # whoever asked before the other took its share takes one as well, and no more
    assert left
    assert left == there[-len(left) :]


def test_the_oldest_are_dropped_by_name_when_nothing_received_is_left(dropping: Stream) -> None:
    there = dropping.fill(ONE, THIRD)
    dropping.commit(0, there[5] + 1)

    keeper = dropping.look(2)

    left = dropping.sequences()
    assert left == there[-len(left) :]
    lost = [n for n in there if n not in left and not (n % 2 and n <= there[5])]
    assert keeper.report.dropped_messages == len(lost)
    entries = [json.loads(line) for line in (dropping.folder / NAME).read_text().splitlines()]
    named = [entry for entry in entries if entry["state"] == "announced"]
    assert {n for e in named for n in lost if e["first"] <= n < e["until"]} == set(lost)
    assert {entry["host"] for entry in named} == {"web01", "db"}
    assert (
        sum(entry["messages"] for entry in named)
        == sum(entry["lines"] for entry in named)
        == len(lost)
    )
    assert entries[-1]["state"] == "dropped"
    assert not keeper.report.waits


def test_nothing_that_no_receiver_has_is_dropped_while_anything_received_is_held(
    dropping: Stream,
) -> None:
    for number in range(20):
        dropping.publish(OTHER, f"rotated-{number}")
    there = dropping.fill(ONE, THIRD)
    dropping.commit(0, there[-1] + 1)

    dropping.look()

    assert dropping.sequences(THIRD) == [n for n in there if n % 2 == 0]
    assert not (dropping.folder / NAME).exists()


def test_a_drop_that_was_cut_off_is_looked_after(dropping: Stream) -> None:
    there = dropping.fill(ONE)
    dropping.look()
    left = dropping.sequences()
    gone = [n for n in there if n not in left]
    book = dropping.folder / NAME
    *announced, _ = book.read_text().splitlines(keepends=True)
    whole, cut = (json.loads(announced[0]) | {"batch": batch} for batch in ("a", "b"))
    cut |= {"first": gone[-1], "until": gone[-1] + 3}
    book.write_text(f'{json.dumps(whole)}\n{json.dumps(cut)}\n{{"torn": ')

    dropping.look()

    ends = [json.loads(line) for line in book.read_text().splitlines()[3:5]]
    assert [(one["batch"], one["state"]) for one in ends] == [
        ("a", "dropped"),
        ("b", "interrupted"),
    ]
    assert ends[1]["left"] == [{"subject": ONE, "first": gone[-1] + 1, "until": gone[-1] + 3}]


def test_what_cannot_be_named_is_not_dropped(dropping: Stream) -> None:
    there = dropping.fill(ONE)
    (dropping.folder / NAME).mkdir()

    dropping.look()

    assert dropping.sequences() == there


def test_lines_that_nobody_receives_are_named_before_they_expire(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.publish(ONE)
    last = stream.publish(OTHER)
    stream.publish(THIRD)
    stream.commit(0, last)
    config = {**stream.info()["config"], "max_age": 3600 * 10**9, "duplicate_window": 10**9}

    stream.ask(lambda connection: connection.api(f"STREAM.UPDATE.{STREAM}", config))
    keeper = stream.look(later=3000 * 10**9)

    assert keeper.report.nearest is not None
    assert keeper.report.nearest.hosts == ("web02",)
    assert caplog.text.count("lines that no receiver has") == 2
    assert "web01" not in caplog.text
