"""A real server gets what is declared; a plan says what it deletes, and a start deletes nothing."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.provision.apply import apply, carry_out, read_actual
from broker.provision.plan import plan
from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError
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
