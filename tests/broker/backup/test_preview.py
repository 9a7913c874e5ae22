"""The preview of a restore, for every state of a broker and a backup."""

from datetime import UTC, datetime
from typing import Any

import pytest

from broker.backup.archives import StreamArchive
from broker.backup.closing import close_config, open_config
from broker.backup.restore import adapt, preview
from nats_logship.app.exits import OperatorError
from nats_logship.wire.restored import Ancestor, ancestors

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = 86_400_000_000_000


def archive(stream: str, first: str = "", last: str = "", **config: Any) -> StreamArchive:
    state = {"messages": 5, "bytes": 500, "first_seq": 1, "last_seq": 9}
    times = {"first_ts": first or "2026-11-21T11:00:00Z", "last_ts": last or "2026-11-21T11:30:00Z"}
    return StreamArchive(
        stream=stream,
        file=f"{stream}.nats",
        size=1,
        sha256="",
        created="then",
        config={"name": stream, **config},
        state=state | times,
    )


def info(stream: str, last: int, messages: int = 3, **config: Any) -> dict[str, Any]:
    times = {"first_ts": "2026-11-20T11:00:00Z", "last_ts": "2026-11-21T11:00:00Z"}
    state = {"messages": messages, "bytes": 2048, "first_seq": 1, "last_seq": last, **times}
    return {"created": "now", "config": {"name": stream, **config}, "state": state}


NAMES, CONFIG = ("KV_LOGS_OFFSETS", "KV_LOGS_POSITIONS", "LOGS"), "KV_LOGS_CONFIG"
ALL = tuple(map(archive, (*NAMES, CONFIG)))
HALF = close_config({"name": "LOGS", "subjects": ["logs.>"]}, Ancestor("then", 10))
EMPTY = {name: info(name, 0, 0) for name in NAMES} | {CONFIG: info(CONFIG, 1, 1)}


@pytest.mark.parametrize(
    ("changed", "deleted"),
    [
        pytest.param({}, set(), id="an empty broker, as it was set up"),
        pytest.param({"LOGS": info("LOGS", 4)}, {"LOGS", CONFIG}, id="lines are there"),
        pytest.param({"LOGS": info("LOGS", 4, 0)}, {"LOGS", CONFIG}, id="lines were there"),
        pytest.param(
            {"LOGS": info("LOGS", 4) | {"config": HALF}}, set(), id="a restore was broken off"
        ),
        pytest.param(
            {"LOGS": info("LOGS", 4) | {"config": {**HALF, "subjects": ["logs.>"]}}},
            {"LOGS", CONFIG},
            id="a restore was broken off, and the stream opened by somebody",
        ),
        pytest.param(
            {"KV_LOGS_OFFSETS": info("KV_LOGS_OFFSETS", 7)},
            {"KV_LOGS_OFFSETS", CONFIG},
            id="receivers were there",
        ),
    ],
)
def test_a_preview_names_what_is_deleted(changed: dict[str, Any], deleted: set[str]) -> None:
    assert preview(ALL, {}) == {}
    assert set(preview(ALL, EMPTY | changed)) == deleted


def test_a_restored_stream_keeps_the_brokers_replicas_storage_and_limits() -> None:
    day = archive("LOGS", max_age=DAY, num_replicas=3, storage="file", max_bytes=-1)
    old = archive("LOGS", "2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z", max_age=DAY)
    there = {"num_replicas": 1, "storage": "memory", "max_age": 2 * DAY, "max_bytes": 7}

    assert adapt(day, {}, NOW) == day
    assert adapt(day, {"LOGS": there}, NOW).config == {"name": "LOGS", **there}
    other = adapt(day, {"OTHER": there}, NOW).config  # a stream that this broker does not have
    assert (other["num_replicas"], other["max_age"]) == (1, DAY)
    assert adapt(old, {}, NOW).config["max_age"] == 0


def test_a_stream_that_is_too_small_for_its_archive_is_refused() -> None:
    one = archive("LOGS", subjects=["logs.>"], max_bytes=100)

    for limit in (500, -1):
        preview([one], {"LOGS": info("LOGS", 0, max_bytes=limit)})
    with pytest.raises(OperatorError, match="more than its limit"):
        preview([one], {"LOGS": info("LOGS", 0, max_bytes=7)})


def test_a_stream_that_was_restored_twice_knows_both_ancestors() -> None:
    archived = {"name": "LOGS", "subjects": ["logs.>"], "metadata": {"_nats.level": "1"}}
    once = open_config(close_config(archived, Ancestor("first", 100)), archived)
    twice = open_config(close_config(once, Ancestor("second", 70)), archived)

    assert twice["subjects"] == archived["subjects"]
    assert ancestors(twice) == (Ancestor("first", 70), Ancestor("second", 70))
    assert ancestors(archived) == ancestors({"metadata": {"logship.restored_from": "7"}}) == ()
