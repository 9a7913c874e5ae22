"""What a restore would mean, for every state that a broker and a backup can be in."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.backup.directory import Archive
from broker.backup.preview import RestoreOptions, closed_config, limit_of, preview
from broker.wire.descent import Ancestor, ancestors, restoring

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = 86_400_000_000_000
KEEP = RestoreOptions()


def archive(stream: str, first: str = "", last: str = "", **config: Any) -> Archive:
    state = {"messages": 5, "bytes": 500, "first_seq": 1, "last_seq": 9}
    times = {"first_ts": first or "2026-11-21T11:00:00Z", "last_ts": last or "2026-11-21T11:30:00Z"}
    return Archive(
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


ALL = tuple(map(archive, ("KV_LOGS_OFFSETS", "KV_LOGS_POSITIONS", "LOGS", "KV_LOGS_CONFIG")))
HALF = restoring({"name": "LOGS", "subjects": ["logs.>"]}, Ancestor("then", 10))
EMPTY = {
    "LOGS": info("LOGS", 0, 0),
    "KV_LOGS_OFFSETS": info("KV_LOGS_OFFSETS", 0, 0),
    "KV_LOGS_POSITIONS": info("KV_LOGS_POSITIONS", 0, 0),
    "KV_LOGS_CONFIG": info("KV_LOGS_CONFIG", 1, 1),
}


@pytest.mark.parametrize(
    ("there", "deleted"),
    [
        pytest.param({}, [], id="nothing is there"),
        pytest.param(EMPTY, [], id="an empty broker, as it was set up"),
        pytest.param(
            EMPTY | {"LOGS": info("LOGS", 4)}, ["LOGS", "KV_LOGS_CONFIG"], id="lines are there"
        ),
        pytest.param(
            EMPTY | {"LOGS": info("LOGS", 4, 0)}, ["LOGS", "KV_LOGS_CONFIG"], id="lines were there"
        ),
        pytest.param(
            EMPTY | {"LOGS": info("LOGS", 4) | {"config": HALF}},
            [],
            id="a restore was broken off",
        ),
        pytest.param(
            EMPTY | {"LOGS": info("LOGS", 4) | {"config": {**HALF, "subjects": ["logs.>"]}}},
            ["LOGS", "KV_LOGS_CONFIG"],
            id="a restore was broken off, and the stream opened by somebody",
        ),
        pytest.param(
            EMPTY | {"KV_LOGS_OFFSETS": info("KV_LOGS_OFFSETS", 7)},
            ["KV_LOGS_OFFSETS", "KV_LOGS_CONFIG"],
            id="receivers were there",
        ),
        pytest.param(
            EMPTY | {"KV_LOGS_POSITIONS": info("KV_LOGS_POSITIONS", 7)},
            ["KV_LOGS_POSITIONS", "KV_LOGS_CONFIG"],
            id="shippers were there",
        ),
    ],
)
def test_what_is_deleted_is_named(there: dict[str, Any], deleted: list[str]) -> None:
    seen = preview(ALL, there, KEEP, NOW)

    assert set(seen.deletes) == set(deleted)
    assert seen.refusals == ()


def test_it_is_said_how_much_is_deleted_and_from_when() -> None:
    seen = preview(ALL, {"LOGS": info("LOGS", 4, num_subjects=1)}, KEEP, NOW)

    assert "3 messages (2.0 KiB)" in seen.deletes["LOGS"]
    assert "2026-11-20T11:00:00Z to 2026-11-21T11:00:00Z" in seen.deletes["LOGS"]


def test_a_backup_whose_lines_have_all_expired_is_refused_unless_they_are_kept_longer() -> None:
    old = archive("LOGS", "2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z", max_age=DAY)

    refused = preview([old], {}, KEEP, NOW)
    kept = preview([old], {}, RestoreOptions(max_age=timedelta(days=7)), NOW)

    assert "older than its max_age of 1d" in refused.refusals[0]
    assert "--max-age" in refused.refusals[0]
    assert (kept.refusals, kept.notes) == ((), ())


def test_it_is_said_what_expires_at_once() -> None:
    older = archive("LOGS", "2026-11-19T00:00:00Z", max_age=DAY)

    seen = preview([older], {}, KEEP, NOW)

    assert seen.refusals == ()
    assert "before 2026-11-20T12:00:00Z" in seen.notes[0]


def test_it_comes_back_as_it_was_but_for_what_was_asked() -> None:
    one = archive("LOGS", subjects=["logs.>"], num_replicas=3, max_age=DAY, max_bytes=100)

    closed = closed_config(one, RestoreOptions(1, timedelta(days=2)), None)

    assert (closed["num_replicas"], closed["max_age"]) == (1, 2 * DAY)
    assert ancestors(closed) == (Ancestor("then", 10),)


def test_its_limit_is_that_of_the_present_stream_and_none_while_it_is_closed() -> None:
    one = archive("LOGS", subjects=["logs.>"], max_bytes=100)

    assert closed_config(one, KEEP, None)["max_bytes"] == -1
    assert limit_of(one, None) == 100
    assert limit_of(one, info("LOGS", 0, max_bytes=7)) == 7
    assert limit_of(one, info("LOGS", 4) | {"config": HALF | {"max_bytes": -1}}) == 100


def test_it_is_stored_where_the_broker_stores_it_now() -> None:
    one = archive("LOGS", subjects=["logs.>"], storage="file")

    assert closed_config(one, KEEP, info("LOGS", 0, storage="memory"))["storage"] == "memory"
    assert closed_config(one, KEEP, None)["storage"] == "file"


def test_other_streams_keep_their_age() -> None:
    bucket = archive("KV_LOGS_OFFSETS", max_age=0)

    assert closed_config(bucket, RestoreOptions(max_age=timedelta(days=2)), None)["max_age"] == 0
