"""No reply subject, body, header or wildcard of a permitted request reaches beyond its rights."""

import base64
import json
from typing import Any

import pytest

from broker.auth.permissions import API
from nats_logship.wire.subjects import make_inbox
from tests.broker.auth.forbidden import LIKE_A_HASH
from tests.broker.auth.oracle import OWN_LINE, answers, everything, of_others, wait_until_logged
from tests.raw import Raw
from tests.secured import Secured
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

TARGETS = (
    "logs.p0.web02",
    "$KV.LOGS_OFFSETS.p0",
    "$KV.LOGS_CONFIG.partitions",
    "$KV.LOGS_POSITIONS.web02",
    "$JS.API.STREAM.PURGE.LOGS",
    "$JS.API.CONSUMER.DELETE.LOGS.receiver-p0",
    f"{API}.CONSUMER.DELETE.LOGS.shipper-web02",
    "$SYS.REQ.SERVER.PING.VARZ",
    "logship.leave.r0.x",
)


REFUSED = "Nats-Expected-Last-Subject-Sequence: 999"
ASKED = {
    "web01": (
        (OWN_LINE, b"mine", REFUSED),
        ("$KV.LOGS_POSITIONS.web01", b"mine", REFUSED),
        (f"{API}.DIRECT.GET.KV_LOGS_POSITIONS.$KV.LOGS_POSITIONS.web01", b"", ""),
    ),
    "r0": (
        ("$KV.LOGS_OFFSETS.p0", b"mine", REFUSED),
        (f"{API}.CONSUMER.INFO.LOGS.receiver-p0", b"", ""),
        (f"{API}.STREAM.INFO.LOGS", b"", ""),
        (f"{API}.CONSUMER.MSG.NEXT.LOGS.wake-p0-0", b"", ""),
    ),
    "watch": (
        (f"{API}.STREAM.MSG.GET.LOGS", b'{"seq": 1}', ""),
        (f"{API}.CONSUMER.INFO.LOGS.receiver-p0", b"", ""),
        ("$SYS.REQ.SERVER.PING.VARZ", b"", ""),
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("who", ASKED)
def test_a_reply_subject_gives_no_right_to_publish_there(
    server: Secured, own: Raw, who: str, target: str
) -> None:
    before = everything(own)

    with Raw(server.port, who) as client:
        heard = [client.publish(one, body, target, header) for one, body, header in ASKED[who]]

    seen = of_others if who == "r0" else dict  # whose pull is its own affair
    assert not any(one.errors for one in heard)
    assert seen(everything(own)) == seen(before)


def test_the_acknowledgement_of_a_line_changes_nothing_of_others(server: Secured, own: Raw) -> None:
    before = everything(own)

    with Raw(server.port, "web01") as client:
        heard = [client.publish(OWN_LINE, b"for " + one.encode(), one) for one in TARGETS]

    last = b"for " + TARGETS[-1].encode()
    assert not any(one.errors for one in heard)
    wait_until("the lines are stored", lambda: last_line(own) == last, 60)
    assert of_others(everything(own)) == of_others(before)


def last_line(own: Raw, subject: str = OWN_LINE) -> bytes:
    stored = own.ask("$JS.API.STREAM.MSG.GET.LOGS", {"last_by_subj": subject})
    return base64.b64decode(stored.get("message", {}).get("data", ""))


def test_a_reply_subject_of_acks_is_denied_and_logged(server: Secured, own: Raw) -> None:
    before, target = everything(own), "$JS.ACK.LOGS.receiver-p0.1.1.1.1.0"

    with Raw(server.port, "web01") as client:
        heard = client.publish(OWN_LINE, b"a line", target)

    assert heard.errors == (f'Permissions Violation for Publish with Reply of "{target}"',)
    wait_until_logged(server, "web01", f'Reply "{target}"')
    assert everything(own) == before


BODIES = {
    "a filter that its subject does not name": {"filter_subject": "logs.p0.web02"},
    "more filters": {"filter_subjects": ["logs.*.web01", "logs.p0.web02"]},
    "another name": {"name": "receiver-p0"},
    "another durable name": {"name": "shipper-web01", "durable_name": "receiver-p0"},
    "deliveries to the API": {"deliver_subject": "$JS.API.STREAM.PURGE.KV_LOGS_OFFSETS"},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_body_of_a_request_reaches_no_further_than_its_subject(
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


READS = (
    '{"seq": 2}',
    '{"seq": 1, "batch": 10}',
    '{"last_by_subj": "$KV.LOGS_POSITIONS.web02"}',
    '{"next_by_subj": "$KV.LOGS_POSITIONS.>", "seq": 1, "batch": 10}',
    '{"multi_last": ["$KV.LOGS_POSITIONS.>"]}',
)


@pytest.mark.parametrize("body", READS)
def test_the_body_of_a_read_reaches_no_further_than_its_subject(server: Secured, body: str) -> None:
    subject = f"{API}.DIRECT.GET.KV_LOGS_POSITIONS.$KV.LOGS_POSITIONS.web01"

    with Raw(server.port, "web01") as client:
        client.subscribe("_INBOX_web01.>")
        heard = answers(client, client.publish(subject, body.encode(), "_INBOX_web01.x"))

    read = b"".join(payload for _, payload in heard)
    assert b"positions of" not in read.replace(b'positions of web01"', b"")


PUSHING = (
    {"deliver_subject": "logship.receiver.r0.x"},
    {"Deliver_Subject": "logship.receiver.r0.x"},
    {"DELIVER_SUBJECT": "$KV.LOGS_OFFSETS.p1", "deliver_group": "x"},
)


@pytest.mark.parametrize(
    ("who", "name", "lines", "pushing"),
    [
        ("web01", "shipper-web01", "logs.*.web01", PUSHING[0]),
        ("r0", "wake-p0-1", "logs.p0.>", PUSHING[1]),
        ("everything", "mine", "logs.>", PUSHING[2]),
    ],
)
def test_hosts_and_receivers_create_no_consumer_that_pushes(
    server: Secured, own: Raw, who: str, name: str, lines: str, pushing: dict[str, str]
) -> None:
    before, call = everything(own), f"{API}.CONSUMER.CREATE.LOGS.{name}"
    config = {"name": name, "filter_subject": lines, "ack_policy": "none", **pushing}

    with Raw(server.port, who) as client:
        request = {"stream_name": "LOGS", "config": config}
        answer = client.ask(f"{call}.{lines}", request, f"_INBOX_{who}")

    assert next(iter(pushing)) in answer["error"]["description"]
    assert everything(own) == before


@pytest.mark.parametrize("subject", ["logs.*.web01", "logs.>.web01"])
def test_a_wildcard_in_a_subject_reads_nothing_of_others(
    server: Secured, own: Raw, subject: str
) -> None:
    with Raw(server.port, "web01") as client:
        client.subscribe("_INBOX_web01.read.*")  # where no answer to another test comes late
        asked = client.publish(f"{API}.DIRECT.GET.LOGS.{subject}", b"", "_INBOX_web01.read.x")
        heard = answers(client, asked)

    assert not any(b"web02" in payload for _, payload in heard)


@pytest.mark.parametrize("partition", ["p2", "p99", "p00", "q0", "*", ">", "\x00", "\x7f"])
def test_a_host_stores_no_line_outside_of_the_partitions(
    server: Secured, own: Raw, partition: str
) -> None:
    before = everything(own)

    with Raw(server.port, "web01") as client:
        client.publish(f"logs.{partition}.web01", b"a line", "_INBOX_web01.x")

    assert everything(own) == before


@pytest.mark.parametrize("header", ["Nats-Rollup: all", "Nats-Rollup: sub", "Nats-TTL: 1s"])
@pytest.mark.parametrize(
    ("who", "subject"),
    [("r0", "$KV.LOGS_OFFSETS.p0"), ("web01", OWN_LINE), ("web01", "$KV.LOGS_POSITIONS.web01")],
)
def test_nobody_replaces_stored_messages_by_a_header(
    server: Secured, own: Raw, who: str, subject: str, header: str
) -> None:
    before = everything(own)

    with Raw(server.port, who) as client:
        client.publish(subject, b"{}", "", header)

    assert everything(own) == before


def test_a_host_named_like_the_hash_of_another_gets_no_answer_of_it(server: Secured) -> None:
    victim = "web01.example.net"
    inbox = make_inbox(victim)

    with Raw(server.port, LIKE_A_HASH) as attacker, Raw(server.port, victim) as client:
        heard = [attacker.subscribe(f"{one}.>") for one in (inbox, make_inbox(LIKE_A_HASH))]
        client.subscribe(f"{inbox}.>")
        answers(
            client, client.publish(f"{API}.DIRECT.GET.LOGS.logs.p1.{victim}", b"", f"{inbox}.x")
        )
        heard.append(attacker.send(b""))

    assert [len(one.errors) for one in heard] == [1, 0, 0]
    assert not any(one.messages for one in heard)


def test_no_line_is_dropped_for_long_as_a_duplicate_of_another_host(
    server: Secured, own: Raw
) -> None:
    number = "Nats-Msg-Id: 1"

    with Raw(server.port, "web01") as first, Raw(server.port, "web02") as second:
        first.publish(OWN_LINE, b"first", "", number)
        wait_until("it is stored", lambda: last_line(own) == b"first", 30, [])

        def is_stored() -> bool:
            second.publish("logs.p1.web02", b"second", "", number)
            return last_line(own, "logs.p1.web02") == b"second"

        wait_until("the other is stored, too", is_stored, 30, [])


def test_a_flood_of_requests_for_one_consumer_delays_no_other(server: Secured) -> None:
    def request(host: str) -> dict[str, Any]:
        config = {"name": f"shipper-{host}", "filter_subject": f"logs.*.{host}"}
        return {"stream_name": "LOGS", "config": {**config, "mem_storage": True}}

    call, body = f"{API}.CONSUMER.CREATE.LOGS.shipper-web01", json.dumps(request("web01")).encode()
    head = f"PUB {call}.logs.*.web01 _INBOX_web01.x {len(body)}\r\n".encode()

    with Raw(server.port, "web01") as client, Raw(server.port, LIKE_A_HASH) as other:
        client.subscribe("_INBOX_web01.>")
        heard = [client.send((head + body + b"\r\n") * 5000)]
        call = f"{API}.CONSUMER.CREATE.LOGS.shipper-{LIKE_A_HASH}.logs.*.{LIKE_A_HASH}"
        answer = other.ask(call, request(LIKE_A_HASH), f"_INBOX_{LIKE_A_HASH}")
        heard.append(client.send(b""))
        for one in ("web01", LIKE_A_HASH):
            deletion = f"{API}.CONSUMER.DELETE.LOGS.shipper-{one}"
            (client if one == "web01" else other).ask(deletion, inbox=f"_INBOX_{one}")

    assert answer["name"] == f"shipper-{LIKE_A_HASH}"
    assert 0 < sum(len(one.messages) for one in heard) < 2500
