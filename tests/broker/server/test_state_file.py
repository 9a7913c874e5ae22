"""A command waits until the broker of a folder has taken over changed credentials; where none runs, it does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.state_file import Credentials, State, Taken, await_credentials, read_state
from broker.server.store import locked_store


def write(folder: Path, credentials: Credentials) -> None:
    State("nats://127.0.0.1:1", None, str(folder), 1, 2, credentials).write(folder)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    with locked_store(tmp_path):
        yield tmp_path


def test_what_the_broker_has_taken_over_is_done(running: Path) -> None:
    write(running, Credentials(2, secured=True))

    assert await_credentials(running, 2, 20).taken is Taken.DONE


def test_what_the_broker_refuses_is_passed_on_with_its_reason(running: Path) -> None:
    write(running, Credentials(1, secured=True, refused=2, reason="no such account"))

    taking = await_credentials(running, 2, 20)

    assert (taking.taken, taking.reason) == (Taken.REFUSED, "no such account")


def test_credentials_that_were_replaced_by_older_ones_are_waited_for(running: Path) -> None:
    write(running, Credentials(7, secured=True))

    assert await_credentials(running, 3, 0.2).taken is Taken.UNKNOWN


def test_where_no_broker_runs_an_old_file_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, Credentials(1, secured=True))

    assert await_credentials(tmp_path, 2, 20).taken is Taken.NEXT_START


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_what_no_broker_wrote_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.json").write_text(text)

    assert read_state(tmp_path) == {}
