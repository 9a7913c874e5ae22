"""What a restore would mean, for every state that a broker and a backup can be in."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.app.exits import OperatorError
from broker.backup.archives import Archive
from broker.backup.restore import adapted, preview
from broker.wire.descent import Ancestor, ancestors, opened, restoring

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = 86_400_000_000_000


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


CONFIG = "KV_LOGS_CONFIG"


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
def test_what_is_deleted_is_named(changed: dict[str, Any], deleted: set[str]) -> None:
    assert preview(ALL, {}, NOW) == {}
    assert set(preview(ALL, EMPTY | changed, NOW)) == deleted


def test_a_backup_of_which_everything_expires_at_once_is_refused() -> None:
    old = archive("LOGS", "2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z", max_age=DAY)
    partly = archive("LOGS", "2026-11-19T00:00:00Z", max_age=DAY)

    with pytest.raises(OperatorError, match="everything in LOGS"):
        preview([old], {}, NOW)
    assert preview([partly, adapted(old, None, timedelta(days=7))], {}, NOW) == {}


def test_a_stream_that_is_too_small_for_its_archive_is_refused() -> None:
    one = archive("LOGS", subjects=["logs.>"], max_bytes=100)

    for limit in (500, -1):
        preview([one], {"LOGS": info("LOGS", 0, max_bytes=limit)}, NOW)
    with pytest.raises(OperatorError, match="more than its limit"):
        preview([one], {"LOGS": info("LOGS", 0, max_bytes=7)}, NOW)


def test_of_a_stream_that_was_restored_twice_both_ancestors_are_known() -> None:
    archived = {"name": "LOGS", "subjects": ["logs.>"], "metadata": {"_nats.level": "1"}}
    once = opened(restoring(archived, Ancestor("first", 100)), archived)
    twice = opened(restoring(once, Ancestor("second", 70)), archived)

    assert twice["subjects"] == archived["subjects"]
    assert ancestors(twice) == (Ancestor("first", 70), Ancestor("second", 70))
    assert ancestors(archived) == ancestors({"metadata": {"logship.restored_from": "7"}}) == ()
