"""`logbroker purge` and `logbroker rm` as programs: what they show, what they ask, and how they end."""

import subprocess
from collections.abc import Callable

import pytest

from broker.client import bucket
from broker.wire.streams import POSITIONS_BUCKET
from tests.broker.conftest import ask
from tests.receiver.partition import ours

pytestmark = pytest.mark.nats

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def url(logs_url: str) -> str:
    """Return a broker that holds three messages of web01 and one of db01."""
    lines = (ours("web01", "a", number * 7, b"line %d\n" % number) for number in range(3))
    ask(logs_url, *lines, ours("db01", "a", 0, b"secret\x1b[2J\n"))
    return logs_url


def test_a_purge_shows_what_goes_and_asks_first(logbroker_inside: Call, url: str) -> None:
    purge = ("purge", "--server", url, "--host", "web*")

    aimless, dry, unasked = (
        logbroker_inside(*words) for words in [purge[:3], (*purge, "--dry-run"), purge]
    )
    done = logbroker_inside(*purge, "--yes")
    again = logbroker_inside(*purge)

    assert [one.returncode for one in (aimless, dry, unasked, done, again)] == [2, 0, 2, 0, 0]
    assert "say what is to go" in aimless.stderr
    assert dry.stdout == unasked.stdout
    assert "3 messages" in dry.stdout
    assert "NOT RECEIVED of that: 3;" in dry.stdout
    assert "logs.p0.web01" in dry.stdout
    assert "--yes" in unasked.stderr
    assert "removed 3 messages" in done.stdout
    assert again.stdout == "0 messages match\n"


def test_a_purge_of_everything_leaves_the_positions_of_shippers(
    logbroker_inside: Call, logs_url: str
) -> None:
    ask(logs_url, ("logs.p0.web01", b"line\n"), (f"$KV.{POSITIONS_BUCKET}.web01", b"{}"))

    purged = logbroker_inside("purge", "--server", logs_url, "--everything", "--yes")

    assert purged.returncode == 0
    assert ask(logs_url, "STREAM.INFO.LOGS")["state"]["messages"] == 0
    assert ask(logs_url, lambda c: bucket.read(c, POSITIONS_BUCKET, "web01")) is not None


def test_one_message_is_shown_and_goes_for_good(logbroker_inside: Call, url: str) -> None:
    rm = ("rm", "--server", url, "--seq", "4")

    unasked, done, gone = (logbroker_inside(*rm, *yes) for yes in ((), ("--yes",), ()))

    assert [one.returncode for one in (unasked, done, gone)] == [2, 0, 1]
    assert "secret\\x1b[2J" in unasked.stdout
    assert "--yes" in unasked.stderr
    assert "removed message 4 of db01" in done.stdout
    assert "message 4" in gone.stderr
    assert [one.stderr.count("\n") for one in (unasked, gone)] == [1, 1]
