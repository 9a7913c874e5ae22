"""What one has the right to ask for has no effect where one has no right: by a reply, a body, a header, a wildcard."""

import base64
from typing import Any

import pytest

from bench.processes import wait_until
from broker.granting.permissions import API
from tests.broker.granting.oracle import OWN_LINE, everything, is_reported, of_others
from tests.raw import Heard, Raw
from tests.secured import Secured

pytestmark = pytest.mark.nats

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
    wait_until("the line is stored", lambda: last_line(own) == b"for " + target.encode(), 60)
    assert of_others(everything(own)) == of_others(before)


def last_line(own: Raw) -> bytes:
    stored = own.ask("$JS.API.STREAM.MSG.GET.LOGS", {"last_by_subj": OWN_LINE})
    return base64.b64decode(stored.get("message", {}).get("data", ""))


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


@pytest.mark.parametrize("subject", ["logs.*.web01", "logs.>.web01"])
def test_what_stands_for_anything_in_a_subject_takes_in_nothing_of_others(
    server: Secured, own: Raw, subject: str
) -> None:
    with Raw(server.port, "web01") as client:
        client.subscribe("_INBOX_web01.>")
        heard = [client.publish(f"{API}.DIRECT.GET.LOGS.{subject}", b"", "_INBOX_web01.x")]
        wait_until("it is answered", lambda: heard.append(client.say(b"")) or said(heard), 30, [])

    assert not any(b"web02" in payload for payload in said(heard))


def said(heard: list[Heard]) -> list[bytes]:
    return [payload for one in heard for _, payload in one.messages]


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
