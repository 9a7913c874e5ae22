"""`logbroker purge` and `logbroker rm` as programs: what they show, what they ask, and how they end."""

import asyncio
import subprocess
from collections.abc import Callable

import pytest

from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.streams import POSITIONS_BUCKET
from tests.receiver.partition import ours

pytestmark = pytest.mark.nats

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def url(logs_url: str) -> str:
    """Return a broker that holds three messages of web01 and one of db01."""

    async def store() -> None:
        connection = Connection([logs_url], "tests")
        for number in range(3):
            await connection.ask(*ours("web01", "a", number * 7, b"line %d\n" % number))
        await connection.ask(*ours("db01", "a", 0, b"secret\x1b[2J\n"))
        await connection.close()

    asyncio.run(store())
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
    assert again.stdout == "nothing would be removed: no message in the stream matches\n"


def test_a_purge_of_everything_leaves_the_positions_of_shippers(
    logbroker_inside: Call, logs_url: str
) -> None:
    async def store() -> None:
        connection = Connection([logs_url], "tests")
        await connection.ask("logs.p0.web01", b"line\n")
        await bucket.write(connection, POSITIONS_BUCKET, "web01", b"{}", 0)
        await connection.close()

    async def left() -> tuple[int, bucket.Entry | None]:
        connection = Connection([logs_url], "tests")
        info = await connection.api("STREAM.INFO.LOGS")
        entry = await bucket.read(connection, POSITIONS_BUCKET, "web01")
        await connection.close()
        return info["state"]["messages"], entry

    asyncio.run(store())

    purged = logbroker_inside("purge", "--server", logs_url, "--everything", "--yes")

    messages, entry = asyncio.run(left())
    assert (purged.returncode, messages) == (0, 0)
    assert entry is not None


def test_one_message_is_shown_and_goes_for_good(logbroker_inside: Call, url: str) -> None:
    rm = ("rm", "--server", url, "--seq", "4")

    other, unasked = logbroker_inside(*rm, "--host", "web01"), logbroker_inside(*rm)
    done = logbroker_inside(*rm, "--host", "db01", "--yes")
    gone = logbroker_inside(*rm)

    assert [one.returncode for one in (other, unasked, done, gone)] == [1, 2, 0, 1]
    assert "is of host db01" in other.stderr
    assert "secret\\x1b[2J" in unasked.stdout
    assert "--yes" in unasked.stderr
    assert "removed message 4 of db01" in done.stdout
    assert "message 4" in gone.stderr
    assert [one.stderr.count("\n") for one in (other, unasked, gone)] == [1, 1, 1]
