"""Where a restored stream says it comes from."""

import json
from typing import Any

import pytest

from broker.wire.descent import Ancestor, ancestors, is_being_restored, opened, restoring

OLD = Ancestor("2026-11-20T00:00:00Z", 100)
PLAIN: dict[str, Any] = {"name": "LOGS", "subjects": ["logs.>"], "metadata": {"team": "a"}}


def test_a_stream_is_closed_to_publishers_until_it_is_opened() -> None:
    closed = restoring(PLAIN, OLD)
    done = opened(closed, PLAIN)

    assert is_being_restored(closed)
    assert closed["subjects"] == ["logship.restoring.LOGS"]
    assert not is_being_restored(done)
    assert done["subjects"] == ["logs.>"]


def test_it_remembers_what_it_was_restored_from_oldest_first() -> None:
    once = opened(restoring(PLAIN, OLD), PLAIN)
    twice = opened(restoring(once, Ancestor("2026-11-21T00:00:00Z", 200)), PLAIN)

    assert ancestors(PLAIN) == ()
    assert ancestors(twice) == (OLD, Ancestor("2026-11-21T00:00:00Z", 200))
    assert twice["metadata"]["team"] == "a"


def test_the_servers_own_metadata_is_not_sent_back() -> None:
    config = {**PLAIN, "metadata": {"_nats.ver": "2.15.1"}}

    closed = restoring(config, OLD)

    assert not [key for key in closed["metadata"] if key.startswith("_nats.")]


@pytest.mark.parametrize("text", ["", "x", "[1]", '{"a": 1}', json.dumps([["a", "b"]])])
def test_words_of_others_say_nothing(text: str) -> None:
    assert ancestors({"metadata": {"logship.restored_from": text}}) == ()
