"""A real server gets what is declared; a plan says what it deletes, and a start deletes nothing."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.provision.apply import (
    apply,
    carry_out,
    provision_alone,
    provision_cluster,
    read_actual,
)
from broker.provision.plan import plan
from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection

pytestmark = pytest.mark.nats

BEFORE = Topology(partitions=1)


@pytest.mark.parametrize(
    ("topology", "way_round"),
    [
        (Topology(max_bytes=10**12), "--max-bytes and --mirror"),
        (Topology(replicas=3), r"--replicas \(in a cluster\)"),
    ],
    ids=["more than the store", "replicas alone"],
)
async def test_impossible_limits_are_refused_as_a_configuration_error(
    fresh: Connection, topology: Topology, way_round: str
) -> None:
    with pytest.raises(ConfigurationError, match=way_round):
        await apply(fresh, topology)


async def test_a_mirror_of_several_streams_is_set_up_before_the_other_site_can_be_reached(
    fresh: Connection,
) -> None:
    mirror = Topology(partitions=8, stream_count=3, mirror="branch")

    for _ in range(2):
        infos = await provision_alone(fresh, mirror, frozenset())

        assert [info["config"]["name"] for info in infos] == ["LOGS_0", "LOGS_1", "LOGS_2"]


async def publish(connection: Connection, hosts: str) -> None:
    for host in hosts:
        await connection.ask(f"logs.p0.{host}", b"x" * 100)


async def held(connection: Connection) -> int:
    return int((await connection.api("STREAM.INFO.LOGS"))["state"]["messages"])


LOWERED = [
    pytest.param(replace(BEFORE, max_bytes=300), 0, id="bytes, new ones wait"),
    pytest.param(replace(BEFORE, max_bytes=300, discard="old"), 8, id="bytes"),
    pytest.param(replace(BEFORE, max_age=timedelta(seconds=90)), 0, id="age, all younger"),
    pytest.param(replace(BEFORE, replicas=1), 0, id="nothing"),
]


@pytest.mark.parametrize(("after", "gone"), LOWERED)
async def test_exactly_the_messages_in_a_plan_are_deleted(
    fresh: Connection, after: Topology, gone: int
) -> None:
    await apply(fresh, BEFORE)
    await publish(fresh, "aaaabbbccd")

    made = plan(after, await read_actual(fresh, after))
    await carry_out(fresh, made)

    assert any(step.deletes for step in made) == bool(gone)
    assert await held(fresh) == 10 - gone
    assert not plan(after, await read_actual(fresh, after))


async def test_a_start_deletes_nothing(fresh: Connection, caplog: pytest.LogCaptureFixture) -> None:
    await apply(fresh, BEFORE)
    await publish(fresh, "aaaabbbccd")

    with caplog.at_level(logging.WARNING):
        await apply(fresh, replace(BEFORE, discard="old", max_bytes=300))

    assert await held(fresh) == 10
    assert "LOGS is not changed, because the change deletes" in caplog.text
    assert "`logbroker apply --discard old --max-bytes 300` asks first" in caplog.text


def lose_answers(connection: Connection, monkeypatch: pytest.MonkeyPatch, *lost: str) -> None:
    """Lose the connection once after each of these calls, in any order."""
    call, left = connection.api, [*lost]

    async def lose(name: str, *given: Any) -> dict[str, Any]:
        answer = await call(name, *given)
        if name in left:
            left.remove(name)
            raise ConnectionLost("unexpected EOF")
        return answer

    monkeypatch.setattr(connection, "api", lose)


@pytest.mark.parametrize("lost", ["STREAM.NAMES", "STREAM.CREATE.LOGS", "STREAM.INFO.LOGS"])
async def test_a_reload_that_closes_our_own_connection_is_carried_out_again(
    fresh: Connection, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    lose_answers(fresh, monkeypatch, lost)

    infos = await provision_alone(fresh, BEFORE, frozenset())

    assert [info["config"]["name"] for info in infos] == ["LOGS"]


async def test_a_connection_that_is_lost_again_is_an_error(
    fresh: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answers(fresh, monkeypatch, "STREAM.NAMES", "STREAM.NAMES")

    with pytest.raises(OperatorError, match=r"cannot set up nats-server at .*: unexpected EOF"):
        await provision_alone(fresh, BEFORE, frozenset())


class SlowUpdates(Connection):
    """A connection whose updates of streams wait until they are `allowed`."""

    def __init__(self, url: str) -> None:
        super().__init__([url], "slow")
        self.wanted, self.allowed = asyncio.Event(), asyncio.Event()

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float = 60
    ) -> dict[str, Any]:
        if name.startswith("STREAM.UPDATE."):
            self.wanted.set()
            await self.allowed.wait()
        return await super().api(name, body, patience)


async def test_a_limit_that_a_slower_broker_raises_again_is_lowered_again(
    fresh: Connection, fresh_url: str
) -> None:
    async def limit() -> int:
        return int((await fresh.api("STREAM.INFO.LOGS"))["config"]["max_bytes"])

    async def join(connection: Connection, most: int) -> None:
        own = replace(BEFORE, max_bytes=most, may_grow=False)
        await provision_cluster(connection, own, lambda _: None, overlap=3.0)

    await apply(fresh, replace(BEFORE, max_bytes=300))
    slow = SlowUpdates(fresh_url)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(join(slow, 200))
        await slow.wanted.wait()
        group.create_task(join(fresh, 100))
        while await limit() != 100:  # noqa: ASYNC110 - a value of the server
            await asyncio.sleep(0.05)
        slow.allowed.set()
    await slow.close()

    assert await limit() == 100
