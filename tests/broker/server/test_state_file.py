"""A command waits until the broker of a folder has taken over changed credentials; where none runs, it does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.app.exits import OperatorError
from broker.server.state_file import await_credentials, read_state, write_state
from broker.server.store import locked_store


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    with locked_store(tmp_path):
        yield tmp_path


def test_what_the_broker_has_taken_over_is_done(running: Path) -> None:
    write_state(running, credentials={"revision": 2})

    assert await_credentials(running, 2) == "the broker has taken the change"


@pytest.mark.parametrize(
    ("credentials", "why"),
    [
        pytest.param({"revision": 1, "refused": 3, "reason": "odd"}, "odd", id="refused"),
        pytest.param({"revision": 7}, "not taken it within 0.2 s", id="replaced by older ones"),
    ],
)
def test_what_the_broker_does_not_take_is_an_error(
    running: Path, credentials: dict[str, Any], why: str
) -> None:
    write_state(running, credentials=credentials)

    with pytest.raises(OperatorError, match=why):
        await_credentials(running, 3, 0.2)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"credentials": {"revision": 1}}'])
def test_where_no_broker_runs_a_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.json").write_text(text)

    assert "no broker runs" in await_credentials(tmp_path, 2)
    assert read_state(tmp_path).keys() <= {"credentials"}
