"""The six checks, and how they reach monitoring: by `logbroker check` and by metrics."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.inspect.checks import CHECKS, CheckResult, Grade, find_worst, format_nagios, judge
from broker.inspect.metrics import serve_metrics
from broker.inspect.status import SiteStatus, StreamPeer
from broker.provision.apply import apply
from broker.report import REPORT_SUBJECT
from broker.topology import Topology
from nats_logship.app.address import Address
from nats_logship.client.connection import Connection, Message
from tests.broker.conftest import Call, StartBroker, ask, logbroker
from tests.broker.inspect.test_status import a_node, a_status, a_stream, altered
from tests.pages import fetch, page
from tests.support.processes import wait_until

_FOLLOWER = StreamPeer(name="n2", active=100_000_000)


def test_a_broker_that_is_away_is_critical_and_the_rest_is_unknown() -> None:
    found = judge(CHECKS, None, "no broker at nats://b:4222")

    assert [one.grade for one in found] == [*[Grade.CRITICAL] * 2, *[Grade.UNKNOWN] * 4]
    assert {one.text for one in found} == {"no broker at nats://b:4222"}
    assert find_worst(found) is Grade.CRITICAL
    assert find_worst(found[2:]) is Grade.UNKNOWN


def _replicas(*followers: StreamPeer, **changed: Any) -> dict[str, Any]:
    return {"streams": (a_stream(wanted_replicas=3, followers=followers, **changed),)}


def _space(state: str, **space: Any) -> dict[str, Any]:
    retention = {"LOGS": {"state": state, "since": "2026-11-21T10:00:00Z", **space}}
    return {"nodes": (a_node(retention=retention),)}


def _waits(seconds: float) -> dict[str, Any]:
    first, second = a_status().partitions
    return {"partitions": (altered(first, behind_seconds=seconds), second)}


def _without(seconds: float, *, used: bool = True, **changed: Any) -> dict[str, Any]:
    """Return a broker whose second partition has had no receiver for so long."""
    first, second = a_status().partitions
    receiver = {"running": False, "missing_seconds": seconds}
    lone = altered(second, receiver=receiver, **changed)
    return {"partitions": (first, lone), "current_partitions": 2 if used else 1}


_ENDED = {"owner": "central", "released": True}
_MOVED = {"owner": "central", "moved": True}


def _ends(time: str) -> dict[str, Any]:
    return {"nodes": (a_node(certificates=[{"path": "/tls/broker.pem", "not_after": time}]),)}


def _copies(*sites: SiteStatus, **more: Any) -> dict[str, Any]:
    return {"streams": (a_stream(sites=sites), a_stream(sites=sites, name="LOGS_1")), **more}


_NEAR = SiteStatus(name="near", lag=3, contact_seconds=0.4)
_AWAY = SiteStatus(name="away", lag=0, contact_seconds=90.0)
_NEVER = SiteStatus(name="never", error="no answer")
_UNLINKED = {"nodes": (a_node(site_remotes=2, site_links=1),)}


def _link(links: int | None) -> dict[str, Any]:
    return {"nodes": (a_node(site_remotes=1, site_links=links),)}


def _two_streams(used: int, other: int) -> dict[str, Any]:
    """Return a broker whose second stream has received lines only; the first has none."""
    streams = (a_stream(bytes=used, messages=3), a_stream(name="LOGS_1", bytes=other))
    return {"streams": streams, **_space("ok")}


_UNREAD = {"partitions": tuple(altered(one, behind=None) for one in a_status().partitions)}
_LAGS = altered(_FOLLOWER, current=False, lag=20)


@pytest.mark.parametrize(
    ("check", "changed", "grade", "text"),
    [
        ("connection", {}, Grade.OK, "nats://b:4222 answered in 10 ms"),
        ("connection", {"answer_seconds": 0.6}, Grade.WARNING, "600 ms"),
        ("stream", {}, Grade.OK, "1 of 1 server"),
        ("stream", {"streams": (a_stream(lost_messages=1),)}, Grade.CRITICAL, "damaged"),
        ("stream", {"current_partitions": 0}, Grade.CRITICAL, "logbroker apply"),
        ("stream", _UNREAD, Grade.CRITICAL, "no consumer answers for p0, p1"),
        ("stream", _replicas(_FOLLOWER, _FOLLOWER), Grade.OK, "3 of 3"),
        ("stream", _replicas(_FOLLOWER), Grade.WARNING, "2 of 3"),
        ("stream", _replicas(_FOLLOWER, _LAGS), Grade.WARNING, "n2 is 20 operations behind, seen"),
        ("stream", _replicas(altered(_FOLLOWER, offline=True)), Grade.CRITICAL, "is offline"),
        ("stream", _replicas(_FOLLOWER, _FOLLOWER, leader=""), Grade.CRITICAL, "no leader"),
        ("space", {}, Grade.OK, "50% of LOGS"),
        ("space", {"streams": (a_stream(bytes=800),)}, Grade.WARNING, "80% of LOGS"),
        ("space", {"store_used": 1900}, Grade.CRITICAL, "95% of the store"),
        ("space", {"streams": (a_stream(bytes=950, max_bytes=None),)}, Grade.OK, "30% of the"),
        ("space", {"streams": (a_stream(bytes=950),), **_space("ok")}, Grade.OK, "not received"),
        ("space", _two_streams(800, 950), Grade.WARNING, "80% of LOGS (100% of it not received)"),
        ("space", _two_streams(500, 950), Grade.OK, "95% of LOGS_1 (0% of it not received)"),
        ("space", {"nodes": (a_node(frozen="full"),)}, Grade.CRITICAL, "stores nothing more"),
        ("space", {"nodes": (a_node(free=9, reserve=10),)}, Grade.WARNING, "of --reserve"),
        ("space", _space("purging"), Grade.OK, ""),
        (
            "space",
            _space("hosts wait", needed_by=["p0"]),
            Grade.CRITICAL,
            "p0 still needs its oldest",
        ),
        ("space", _space("oldest lines are dropped"), Grade.CRITICAL, "a receiver still needs"),
        ("receivers", _waits(599.0), Grade.OK, "3 messages wait, the oldest for "),
        ("receivers", _waits(600.0), Grade.WARNING, "p0: 3 messages wait"),
        ("receivers", _waits(3600.0), Grade.CRITICAL, "p0: 3 messages wait"),
        ("receivers", _without(59.0), Grade.OK, "3 messages wait"),
        ("receivers", _without(60.0), Grade.WARNING, "p1: 0 messages wait; it "),
        ("receivers", _without(75.0), Grade.WARNING, "it never had a receiver"),
        ("receivers", _without(75.0, owner="central"), Grade.WARNING, "central does not answer"),
        ("receivers", _without(75.0, **_ENDED), Grade.WARNING, "for 1m15s: central has ended"),
        ("receivers", _without(75.0, **_MOVED), Grade.WARNING, "offset was moved by hand"),
        ("receivers", _without(75.0, behind_seconds=3600.0), Grade.CRITICAL, "it never had a"),
        ("receivers", _without(75.0, used=False), Grade.OK, "3 messages wait"),
        ("receivers", _without(75.0, used=False, behind=1), Grade.WARNING, "p1: 1 message waits"),
        ("certificates", _ends("2027-11-21T16:00:00+00:00"), Grade.OK, "/tls/broker.pem on n1"),
        ("certificates", _ends("2026-12-11T16:00:00+00:00"), Grade.WARNING, "ends in"),
        ("certificates", _ends("2026-11-25T16:00:00+00:00"), Grade.CRITICAL, "ends in"),
        ("certificates", _ends("2026-11-20T16:00:00+00:00"), Grade.CRITICAL, "ended on"),
        ("sites", {}, Grade.OK, "this broker copies no other site"),
        ("sites", _copies(_NEAR), Grade.OK, "site near: 6 behind"),
        ("sites", _copies(_AWAY, _NEAR), Grade.WARNING, "site near: 6 behind"),
        (
            *("sites", _copies(_NEAR, _AWAY), Grade.WARNING),
            "LOGS, LOGS_1 from site away is unknown since 2026-11-21T15:58:30Z, was 0 behind",
        ),
        ("sites", _copies(_NEVER), Grade.WARNING, "since this broker started (no answer)"),
        ("sites", _UNLINKED, Grade.WARNING, "n1 is connected to 1 of 2 other sites"),
        ("sites", _link(None), Grade.WARNING, "an unknown number of 1"),
        ("sites", _link(1), Grade.OK, ""),
    ],
)
def test_each_check_returns_a_grade_and_its_reason(
    check: str, changed: dict[str, Any], grade: Grade, text: str
) -> None:
    found = judge([check], a_status(**changed))

    assert find_worst(found) is grade
    assert any(text in one.text for one in found)


def test_nagios_reads_one_line_with_the_worst_first() -> None:
    found = [
        CheckResult("stream", Grade.WARNING, "p1 | waits\n"),
        CheckResult("space", Grade.CRITICAL, "full"),
        CheckResult("receivers", Grade.OK, "so"),
    ]

    assert format_nagios(found) == (r"CRITICAL logbroker space: full; WARNING stream: p1 / waits\n")
    assert format_nagios(found[2:]) == "OK logbroker receivers: so"


@pytest.mark.nats
def test_the_command_returns_the_grade_as_its_exit_code(call: Call, logs_url: str) -> None:
    ask(logs_url, ("logs.p0.web01", b"a\n"))

    # an answer that takes long is a warning; a busy machine may need a second one
    all_ = [call("check") for _ in range(3)]
    well, behind = min(all_, key=lambda one: one.returncode), call("check", "receivers", "--json")

    assert (well.returncode, well.stdout.count("\n")) == (0, 1), well.stdout
    assert well.stdout.startswith("OK logbroker connection: nats://127.0.0.1")
    (found,) = json.loads(behind.stdout)["findings"]
    assert found["text"].startswith("1 message waits")


@pytest.mark.nats
def test_a_source_with_more_partitions_is_critical(start_broker: StartBroker) -> None:
    server = start_broker("--partitions", "2").ready()["server"]

    async def copy_other_partitions(connection: Connection) -> None:
        config = (await connection.api("STREAM.INFO.LOGS"))["config"]
        away = {"name": "AWAY", "subjects": ["logs.p2.>", "logs.p4.>"]}
        await connection.api("STREAM.CREATE.AWAY", away)
        for partition in (2, 4, 4):
            await connection.ask(f"logs.p{partition}.web01", b"a line\n")
        await connection.api("STREAM.UPDATE.LOGS", {**config, "sources": [{"name": "AWAY"}]})

    def is_copied() -> bool:
        return bool(ask(server, "STREAM.INFO.LOGS")["state"]["messages"] == 3)

    ask(server, copy_other_partitions)
    wait_until("all is copied", is_copied, 30)
    found = logbroker("check", "receivers", "--server", server)
    assert found.returncode == 2
    assert found.stdout == (
        "CRITICAL logbroker receivers: nobody receives 3 messages of p2, p4, copied from another "
        "site: run `logbroker partitions 5`, and start receivers for them\n"
    )

    ask(server, "STREAM.DELETE.AWAY")  # here its subjects are of the same account
    spread = logbroker("partitions", "5", "--yes", "--server", server)
    found = logbroker("check", "receivers", "--server", server)
    assert spread.returncode == 0, spread.stderr
    assert found.stdout.startswith("OK logbroker receivers: 3 messages wait")


@pytest.mark.nats
def test_a_check_that_fails_prints_one_line(fresh_url: str, tmp_path: Path) -> None:
    away = logbroker("check", "--server", "nats://127.0.0.1:1")
    bare = logbroker("check", "receivers", "stream", "--server", fresh_url)
    unusable = logbroker("check", "--creds", tmp_path / "none", "--server", fresh_url)

    assert [one.returncode for one in (away, bare, unusable)] == [2, 2, 3]
    assert away.stdout.startswith(f"CRITICAL logbroker {', '.join(CHECKS)}: no broker at")
    assert "logbroker stream, receivers: the broker refuses: stream not found" in bare.stdout
    assert "check --creds" in unusable.stdout
    assert all(one.stdout.count("\n") == 1 for one in (away, bare, unusable))


@pytest.mark.nats
def test_metrics_are_the_numbers_of_the_status(start_broker: StartBroker) -> None:
    broker = start_broker("--partitions", "2", "--metrics", "127.0.0.1:0", "--max-bytes", "100MB")
    server = broker.ready()["server"]

    ask(server, *[("logs.p1.web01", b"a line\n")] * 3)

    def samples() -> dict[tuple[str, ...], float]:
        return {
            (one.name.removeprefix("logbroker_"), *list(one.labels.values())[:1]): one.value
            for family in text_string_to_metric_families(page(broker, "/metrics")[1])
            for one in family.samples
        }

    def has_all_of_them() -> bool:
        found = samples()
        named = (("stream_messages", "LOGS"), ("partition_behind", "1"), ("hosts",))
        return [found.get(name) for name in named] == [3, 3, 1]

    wait_until("it listens", lambda: "listening on http" in broker.read_log(), 60)
    wait_until("all figures are known", has_all_of_them, 60, every=0.5)
    found = samples()
    assert found["stream_max_bytes", "LOGS"] == 100_000_000
    assert found["silent_hosts",] == 0
    assert found["partition_behind", "0"] == found["partition_behind_seconds", "0"] == 0
    assert found["partition_behind_seconds", "1"] > 0
    assert {value for key, value in found.items() if key[0] == "check_status"} == {0.0}
    assert [value for key, value in found.items() if key[0] == "retention_purged_messages"] == [0]
    assert page(broker, "/healthz") == (200, "ok\n")
    assert page(broker, "/")[0] == 404


@pytest.mark.nats
@pytest.mark.parametrize(("name", "code"), [("n1", 200), ("n2", 503)])
async def test_healthz_is_about_its_own_server_alone(
    fresh: Connection, caplog: pytest.LogCaptureFixture, name: str, code: int
) -> None:
    async def report(message: Message) -> None:
        frozen = a_node(name="n2", frozen="full").model_dump_json()
        await fresh.publish(message.reply, frozen.encode())

    await apply(fresh, Topology(partitions=1))
    await fresh.subscribe(REPORT_SUBJECT, report)
    caplog.set_level("INFO")
    serving = asyncio.create_task(serve_metrics(fresh, Address("127.0.0.1", 0), name))
    found, deadline = (0, "starting\n"), time.monotonic() + 30
    while found[1] == "starting\n" and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
        if address := re.search(r"listening on (http://\S+)", caplog.text):
            found = await asyncio.to_thread(fetch, f"{address[1]}/healthz")
    serving.cancel()

    assert found == (code, "ok\n" if code == 200 else "n2: full\n")
