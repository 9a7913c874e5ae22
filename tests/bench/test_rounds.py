import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.contenders import BY_DEFAULT, Contender, NoStrace, bare, slowed
from bench.contest import What, contest
from bench.processes import Processes
from bench.pulls import pull
from bench.rounds import Publisher, Rounds
from broker.client.connection import ConnectionLost, Rejected
from broker.wire.streams import STREAM

_ROOM = 2**30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contender]:
    folder = tmp_path_factory.mktemp("rounds")
    with Processes(folder) as processes:
        yield bare("bare", folder, processes, _ROOM, BY_DEFAULT)


@pytest.fixture
def empty(server: Contender) -> Contender:
    asyncio.run(server.empty())
    return server


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(Rounds("", 10), id="a message"),
        pytest.param(Rounds("", 20_000), id="a larger one"),
        pytest.param(Rounds("", 10, hosts=4), id="of some hosts"),
    ],
)
async def test_every_round_is_stored_and_can_be_pulled(empty: Contender, rounds: Rounds) -> None:
    count = 5 * rounds.hosts

    with Publisher(empty.port, rounds) as publisher:
        await asyncio.to_thread(publisher.publish, 5)

    async with empty.connected() as connection:
        state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
        assert (state["messages"], state["num_subjects"]) == (count, rounds.hosts)
        assert await pull(connection, count) == 5 * rounds.turn
        with pytest.raises(ConnectionLost, match=f"0 messages where {count} were published"):
            await pull(connection, count)


def test_a_round_says_what_it_expects(empty: Contender) -> None:
    rounds = Rounds("", 10)
    with Publisher(empty.port, rounds) as publisher:
        publisher.publish(1)

    with (
        Publisher(empty.port, rounds) as another,
        pytest.raises(Rejected, match="wrong last sequence: "),
    ):
        another.publish(1)


def test_a_contest_tells_of_each_in_turn_what_it_took(server: Contender) -> None:
    rounds = Rounds("rounds", 100, hosts=2)

    taken = contest([server, server], [rounds], 1_000, 2, *What)

    assert [one.what for one in taken] == [What.PUBLISH, What.PULL] * 4
    assert {(one.who, one.case, one.size, one.rounds) for one in taken} == {
        ("bare", "rounds", 1_000, 5)
    }
    assert all(one.seconds > 0 and one.cpu > 0 for one in taken)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_each_fsync_takes_longer_when_slowed(tmp_path: Path) -> None:
    try:
        before = slowed(20)
    except NoStrace as error:
        pytest.skip(str(error))
    with Processes(tmp_path) as processes:
        slow = bare("slow", tmp_path, processes, _ROOM, before=before)

        taken = contest([slow], [Rounds("lines", 10)], 100, 1, What.PUBLISH)

    assert taken[0].milliseconds >= 20


def test_without_strace_it_is_said_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoStrace, match="apt install strace"):
        slowed(2)
