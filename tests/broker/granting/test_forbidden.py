"""Nobody does what it has no right to: each attempt is denied to its face, told in the server's log, and changes nothing."""

import base64
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import Processes, wait_until
from broker.granting.permissions import API
from broker.serving.serverlog import Level, read_line
from tests import secured
from tests.broker.granting.forbidden import PUBLISHED, SUBSCRIBED
from tests.raw import Raw
from tests.secured import OWN, Secured

pytestmark = pytest.mark.nats

IDENTITIES = (
    *map(secured.host, ("web01", "web02", "web01.example.net")),
    secured.receiver("r0", 0),
    secured.receiver("r1", 1),
    secured.receiver("everything"),
    secured.admin("ops"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a server with a line of each host, an offset of each partition, and a consumer of each kind."""
    folder = tmp_path_factory.mktemp("forbidden")
    with Processes(folder) as processes:
        started = secured.start_secured(processes, folder, *IDENTITIES)
        with Raw(started.port, OWN) as own:
            for subject in ("logs.p0.web01", "logs.p0.web02", "logs.p1.web01.example.net"):
                own.ask(subject, "a line")
            for partition in (0, 1):
                own.ask(f"$KV.LOGS_OFFSETS.p{partition}", {"partition": partition})
                for name in (f"receiver-p{partition}", f"wake-p{partition}-0"):
                    make_consumer(own, name, f"logs.p{partition}.>")
            make_consumer(own, "shipper-web02", "logs.*.web02")
        yield started


def make_consumer(own: Raw, name: str, subject: str) -> None:
    config = {"durable_name": name, "ack_policy": "all", "filter_subject": subject}
    body = {"stream_name": "LOGS", "config": config}
    assert "error" not in own.ask(f"$JS.API.CONSUMER.CREATE.LOGS.{name}.{subject}", body)


@pytest.fixture(scope="module")
def own(server: Secured) -> Iterator[Raw]:
    with Raw(server.port, OWN) as client:
        yield client


def everything(own: Raw) -> dict[str, Any]:
    """Return all that the broker holds: streams with their messages, consumers with where they stand."""
    found: dict[str, Any] = {}
    for stream in own.ask("$JS.API.STREAM.LIST")["streams"]:
        name, state = stream["config"]["name"], stream["state"]
        numbers = range(state["first_seq"], state["last_seq"] + 1)
        messages = [own.ask(f"$JS.API.STREAM.MSG.GET.{name}", {"seq": n}) for n in numbers]
        consumers = own.ask(f"$JS.API.CONSUMER.LIST.{name}").get("consumers") or []
        for consumer in consumers:
            consumer.pop("ts")
        found[name] = [stream["config"], state, messages, consumers]
    return found


@pytest.mark.parametrize(
    ("who", "subject"),
    [pytest.param(who, one, id=f"{who} {one}") for who in PUBLISHED for one in PUBLISHED[who]],
)
def test_a_publish_without_the_right_to_it_is_denied_and_reported(
    server: Secured, own: Raw, who: str, subject: str
) -> None:
    before = everything(own)

    with Raw(server.port, who) as client:
        heard = client.publish(subject, b'{"seq": 1}', f"_INBOX_{who}.x")

    assert heard.errors == (f'Permissions Violation for Publish to "{subject}"',)
    assert not heard.messages
    is_reported(server, who, f'Publish Violation - Subject "{subject}"')
    assert everything(own) == before


@pytest.mark.parametrize(
    ("who", "subject"),
    [pytest.param(who, one, id=f"{who} {one}") for who in SUBSCRIBED for one in SUBSCRIBED[who]],
)
def test_a_subscription_without_the_right_to_it_is_denied_and_reported_also_in_a_queue(
    server: Secured, who: str, subject: str
) -> None:
    with Raw(server.port, who) as client, Raw(server.port, "web02") as other:
        heard = [client.subscribe(subject, queue) for queue in ("", "crowd")]
        other.publish("$SYS.REQ.USER.INFO", b"", "_INBOX_web02.x")
        after = client.say(b"")

    assert [error.split('"')[1] for one in heard for error in one.errors] == [subject, subject]
    assert not any(one.messages for one in (*heard, after))
    is_reported(server, who, f'Subscription Violation - Subject "{subject}"')


def is_reported(server: Secured, who: str, words: str) -> None:
    def is_said() -> bool:
        told = (read_line(line) for line in server.said().splitlines() if words in line)
        return any(f"user:{who}" in one.text and one.level is Level.ERROR for one in told)

    wait_until("the denial is reported", is_said, 10, [server.process])


@pytest.mark.parametrize(
    ("user", "password"),
    [
        pytest.param("", "", id="nobody"),
        pytest.param("web01", "wrong", id="a wrong password"),
        pytest.param("web99", "web99", id="a host that is not known"),
        pytest.param("SYS", "SYS", id="an account's name"),
        pytest.param("*", "*", id="a wildcard"),
    ],
)
def test_who_has_no_credential_is_not_let_in(
    server: Secured, own: Raw, user: str, password: str
) -> None:
    before = everything(own)

    with Raw(server.port, user, password) as client:
        heard = client.heard
        client.publish("logs.p0.web01", b"a line")

    assert heard.errors == ("Authorization Violation",)
    assert heard.is_over
    wait_until("it is reported", lambda: "authentication error" in server.said(), 10, [])
    assert everything(own) == before


OWN_LINE = "logs.p0.web01"
TARGETS = (
    "logs.p0.web02",
    "$KV.LOGS_OFFSETS.p0",
    "$KV.LOGS_CONFIG.partitions",
    "$JS.API.STREAM.PURGE.LOGS",
    "$JS.API.CONSUMER.DELETE.LOGS.receiver-p0",
    f"{API}.CONSUMER.DELETE.LOGS.shipper-web02",
    "$SYS.REQ.SERVER.PING.VARZ",
    "logship.leave.r0.x",
)


@pytest.mark.parametrize("target", TARGETS)
def test_an_acknowledgement_cannot_be_had_sent_to_where_one_may_not_publish(
    server: Secured, own: Raw, target: str
) -> None:
    before = everything(own)

    with Raw(server.port, "web01") as client:
        heard = client.publish(OWN_LINE, b"for " + target.encode(), target)

    assert not heard.errors
    stored = own.ask("$JS.API.STREAM.MSG.GET.LOGS", {"last_by_subj": OWN_LINE})["message"]
    assert base64.b64decode(stored["data"]) == b"for " + target.encode()
    assert of_others(everything(own)) == of_others(before)


@pytest.mark.parametrize("target", ["logs.p0.web02", "$KV.LOGS_OFFSETS.p1", "$KV.LOGS_CONFIG.x"])
def test_neither_can_the_answer_to_a_commit_or_a_pull(
    server: Secured, own: Raw, target: str
) -> None:
    before = everything(own)

    with Raw(server.port, "r0") as client:
        refused = "Nats-Expected-Last-Subject-Sequence: 999"
        heard = [
            client.publish("$KV.LOGS_OFFSETS.p0", b"mine", target, refused),
            client.publish(f"{API}.CONSUMER.INFO.LOGS.receiver-p0", b"", target),
            client.publish(f"{API}.STREAM.INFO.LOGS", b"", target),
            client.publish(f"{API}.CONSUMER.MSG.NEXT.LOGS.wake-p0-0", b"", target),
        ]

    assert not any(one.errors for one in heard)
    assert of_others(everything(own)) == of_others(before)


def of_others(found: dict[str, Any]) -> dict[str, Any]:
    """Return configurations, the messages but for those of the own line, and which consumers there are."""
    return {
        name: [
            config,
            [one for one in messages if one["message"]["subject"] != OWN_LINE],
            [consumer["config"] for consumer in consumers],
        ]
        for name, (config, _, messages, consumers) in found.items()
    }


def test_a_publish_that_is_to_be_answered_to_an_acknowledgement_is_denied_and_reported(
    server: Secured, own: Raw
) -> None:
    before, target = everything(own), "$JS.ACK.LOGS.receiver-p0.1.1.1.1.0"

    with Raw(server.port, "web01") as client:
        heard = client.publish(OWN_LINE, b"a line", target)

    assert heard.errors == (f'Permissions Violation for Publish with Reply of "{target}"',)
    is_reported(server, "web01", f'Reply "{target}"')
    assert everything(own) == before


BODIES = {
    "a filter that its subject does not name": {"filter_subject": "logs.p0.web02"},
    "more filters": {"filter_subjects": ["logs.*.web01", "logs.p0.web02"]},
    "another name": {"name": "receiver-p0"},
    "another durable name": {"name": "shipper-web01", "durable_name": "receiver-p0"},
    "deliveries to another host": {"deliver_subject": "logs.p0.web02"},
    "deliveries to a bucket": {"deliver_subject": "$KV.LOGS_OFFSETS.p1"},
    "deliveries to the API": {"deliver_subject": "$JS.API.STREAM.PURGE.KV_LOGS_OFFSETS"},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_a_request_asks_for_reaches_no_further_than_its_subject(
    server: Secured, own: Raw, body: dict[str, Any]
) -> None:
    before = everything(own)
    config = {"name": "shipper-web01", "filter_subject": "logs.*.web01", "ack_policy": "none"}

    with Raw(server.port, "web01") as client:
        call = f"{API}.CONSUMER.CREATE.LOGS.shipper-web01.logs.*.web01"
        request = {"stream_name": "LOGS", "config": {**config, **body}}
        answer = client.ask(call, request, "_INBOX_web01")
        client.ask(f"{API}.CONSUMER.DELETE.LOGS.shipper-web01", inbox="_INBOX_web01")

    assert "error" in answer or answer["name"] == "shipper-web01"
    assert everything(own) == before


@pytest.mark.parametrize("header", ["Nats-Rollup: all", "Nats-Rollup: sub"])
def test_a_receiver_rolls_up_no_bucket_that_others_keep_their_offsets_in(
    server: Secured, own: Raw, header: str
) -> None:
    before = everything(own)

    with Raw(server.port, "r0") as client:
        client.publish("$KV.LOGS_OFFSETS.p0", b"{}", "", header)

    assert everything(own) == before


@pytest.mark.parametrize("header", ["Nats-Rollup: all", "Nats-Rollup: sub", "Nats-TTL: 1s"])
def test_a_host_rolls_up_and_ages_no_lines(server: Secured, own: Raw, header: str) -> None:
    before = everything(own)

    with Raw(server.port, "web01") as client:
        client.publish(OWN_LINE, b"{}", "", header)

    assert everything(own) == before


def test_an_admin_asks_the_server_and_changes_nothing_about_it(server: Secured) -> None:
    with Raw(server.port, "ops") as client:
        told = client.ask("$SYS.REQ.SERVER.PING.VARZ")
        client.subscribe("$SYS.ACCOUNT.>")
        name = told["server"]["id"]
        for call in ("RELOAD", "KICK", "LDM"):
            client.publish(f"$SYS.REQ.SERVER.{name}.{call}", b'{"cid": 1}', "_INBOX.x")
        with Raw(server.port, "web02"):
            wait_until(
                "it hears of who comes",
                lambda: any("SHIP.CONNECT" in subject for subject, _ in client.say(b"").messages),
                10,
                [],
            )

    assert told["data"]["jetstream"]["config"]["store_dir"]
    assert "Reloaded" not in server.said()


def test_who_is_revoked_is_sent_away_and_nobody_else(processes: Processes, tmp_path: Path) -> None:
    server = secured.start_secured(processes, tmp_path, *IDENTITIES)
    with Raw(server.port, "web01") as revoked, Raw(server.port, "web02") as other:
        secured.write_conf(server.conf, server.port, *IDENTITIES[1:])
        os.kill(server.process.pid, signal.SIGHUP)

        wait_until("it is sent away", lambda: revoked.say(b"").is_over, 10, [server.process])
        assert not other.publish("logs.p0.web02", b"a line").is_over
    for subject in ("logs.p0.web01", f"{API}.DIRECT.GET.LOGS.logs.p0.web01", "$SYS.REQ.USER.INFO"):
        with Raw(server.port, "web01") as again:
            assert again.heard.errors == ("Authorization Violation",)
            assert again.publish(subject, b"", "_INBOX_web01.x").is_over
    with Raw(server.port, OWN) as own:
        assert own.ask("$JS.API.STREAM.INFO.LOGS")["state"]["last_seq"] == 1
