"""`logbroker purge` and `rm` show messages, ask, and remove these and nothing else."""

import json

import pytest

from nats_logship.client import bucket
from nats_logship.client.connection import Connection
from nats_logship.wire.positions import Positions
from nats_logship.wire.streams import POSITIONS_BUCKET
from tests.broker.conftest import Call, ask
from tests.receiver.partition import ours

pytestmark = pytest.mark.nats


@pytest.fixture
def url(logs_url: str) -> str:
    """Return a broker with messages of web01 (1, 3, 5, 7) and of db01 (2, 4, 6, 8)."""
    lines = [(host, number) for number in range(4) for host in ("web01", "db01")]
    ask(logs_url, *(ours(host, "a", number * 7, b"line %d\n" % number) for host, number in lines))
    return logs_url


async def held(connection: Connection) -> list[int]:
    state = (await connection.api("STREAM.INFO.LOGS", {"deleted_details": True}))["state"]
    gone = set(state.get("deleted") or ())
    return [n for n in range(state["first_seq"], state["last_seq"] + 1) if n not in gone]


async def shipped(connection: Connection) -> list[int]:
    """Return where the files of db01 go on by its saved positions."""
    entry = await bucket.read(connection, POSITIONS_BUCKET, "db01")
    assert entry
    return [one.offset for one in Positions.decode(entry.value).files.values()]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        pytest.param(["--host", "web01"], [2, 4, 6, 8], id="a host"),
        pytest.param(["--host", "*01", "--partition", "0"], [], id="globs"),
        pytest.param(["--host", "web01", "--before", "seq:4"], [2, 4, 5, 6, 7, 8], id="its oldest"),
        pytest.param(["--before", "seq:4"], [4, 5, 6, 7, 8], id="below a sequence"),
        pytest.param(["--everything"], [], id="everything"),
        pytest.param(["--partition", "1"], list(range(1, 9)), id="a partition without any"),
        pytest.param(["--before", "1h"], list(range(1, 9)), id="before there was any"),
        pytest.param(["--before", "0s"], [], id="until now"),
    ],
)
def test_the_selected_messages_are_removed(
    call: Call, url: str, options: list[str], left: list[int]
) -> None:
    purge = ("purge", *options, "--json")

    dry, done = (call(*purge, option) for option in ("--dry-run", "--yes"))

    assert done.returncode == 0, done.stderr
    assert ask(url, held) == left
    plan, result = (json.loads(one.stdout) for one in (dry, done))
    assert plan == result | {"removed": None}
    assert sum(one["messages"] for one in result["matching"]) == (result["removed"] or 0)
    assert result["removed"] == (8 - len(left) or None)


def test_a_purge_shows_the_messages_and_asks_first(call: Call, url: str) -> None:
    purge = ("purge", "--host", "web*")

    without, dry, unasked = (call(*one) for one in [purge[:1], (*purge, "--dry-run"), purge])
    done = call(*purge, "--yes")
    again = call(*purge)
    older = call("purge", "--before", "2026-11-20T10:00", "--dry-run")

    assert [one.returncode for one in (without, dry, unasked, done, again)] == [2, 0, 2, 0, 0]
    assert "give --host, --partition" in without.stderr
    assert dry.stdout == unasked.stdout
    assert "4 messages" in dry.stdout
    assert "NOT RECEIVED by partition 0; receivers report" in dry.stdout
    assert "logs.p0.web01" in dry.stdout
    assert "--yes" in unasked.stderr
    assert again.stdout == "0 messages match\n"
    assert older.stdout == "0 messages match, stored before 2026-11-20T10:00:00Z\n"


def test_one_message_is_shown_and_erased(call: Call, url: str) -> None:
    ask(url, ours("db01", "b", 0, b"secret\x1b[2J\n"))
    rm = ("rm", "9")

    unasked, done, gone = (call(*rm, *yes) for yes in ((), ("--yes", "--json"), ()))

    assert [one.returncode for one in (unasked, done, gone)] == [2, 0, 1]
    assert "secret\\x1b[2J" in unasked.stdout
    assert "--yes" in unasked.stderr
    result = json.loads(done.stdout)
    assert (result["message"]["sequence"], result["removed"]) == (9, True)
    assert "message 9" in gone.stderr
    # or else the shipper, once it has started again, would ship the secret again
    assert ask(url, shipped)[-1] == len(b"secret\x1b[2J\n")
