"""Requests for consumers are rewritten and passed on only if the consumer cannot push."""

import asyncio
import json
from typing import Any

import pytest

from broker.server.requests import (
    RefusedRequest,
    listen,
    rewrite_copy_request,
    rewrite_pull_request,
)
from nats_logship.client.connection import Connection, Message


@pytest.mark.parametrize(
    "request_",
    [
        b'{"config": {"deliver_subject": "x"}}',
        b'{"config": {"deliver_subject": ""}}',
        b'{"config": {"Deliver_Subject": "x"}}',
        b'{"config": {"name": "a"}, "CONFIG": {"deliver_subject": "x"}}',
        b'{"config": {"flow_control": true}}',
        b'{"config": {"name": "a\\u000bb"}}',
        b'{"config": {"durable_name": 1}}',
        b'{"config": {"durable_name": "count-p2"}}',
        b'{"config": {"name": "reader-m1-0", "durable_name": "reader-m1-0"}}',
        b'{"config": {}, "pedantic": true}',
        b'{"config": []}',
        b"[]",
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"config": {"filter_subject": ' + b"[" * 950 + b"]" * 950 + b', "flow_control": 1}}',
        b'{"config": {"description": "' + b"x" * 100_000 + b'"}}',
    ],
)
def test_a_pushing_or_unreadable_request_is_refused(request_: bytes) -> None:
    with pytest.raises(RefusedRequest):
        rewrite_pull_request(request_)


def test_a_request_is_passed_on_as_it_was_judged() -> None:
    twice = b'{"config": {"deliver_subject": "x"}, "config": {"name": "a"}}'

    assert rewrite_pull_request(twice) == b'{"config": {"name": "a"}}'
    with pytest.raises(RefusedRequest) as refused:
        rewrite_pull_request(b'{"config": {"a\\nERROR all is lost\\u001b": 1}}')
    assert str(refused.value).isprintable()


COPY = {
    "name": "JS_MIRROR_abc123",
    "deliver_subject": "SITE.centre.M.x1",
    "deliver_policy": "by_start_sequence",
    "opt_start_seq": 7,
    "ack_policy": "none",
    "ack_wait": 79_200_000_000_000,
    "max_deliver": 1,
    "idle_heartbeat": 1_000_000_000,
    "flow_control": True,
    "direct": True,
    "sourcing": True,
    "inactive_threshold": 10_000_000_000,
    "metadata": {"_nats.mirror.stream": "LOGS"},
    "replay_policy": "instant",
    "num_replicas": 0,
}
"""What nats-server 2.15.1 asks for."""


def test_a_servers_request_for_a_copy_is_passed_on_unchanged() -> None:
    request = json.dumps({"stream_name": "LOGS", "config": COPY, "action": ""}).encode()

    passed = json.loads(rewrite_copy_request(request, "centre"))

    assert passed == {"stream_name": "LOGS", "config": COPY}


@pytest.mark.parametrize(
    "change",
    [
        *({"name": one} for one in ("receiver-p0", "JS_MIRROR_a.b", None)),
        {"durable_name": "receiver-p0"},
        *({"deliver_subject": one} for one in ("$KV.LOGS_CONFIG.pause", "logs.p0.web01")),
        *({"deliver_subject": one} for one in ("$JS.S.abc", "SITE.other.S.x", ["SITE.centre.S.x"])),
        *({"deliver_subject": f"SITE.centre.{one}"} for one in ("API.x", "S.x.y", "S.x\n", "S.>")),
        {"Deliver_Subject": "$KV.LOGS_CONFIG.pause"},
        {"deliver_group": "all"},
        {"filter_subject": "logs.p0.web01"},
        {"filter_subjects": ["logs.p0.web01"]},
        *({field: False} for field in ("direct", "sourcing", "flow_control")),
        *({"ack_policy": one} for one in ("explicit", "flow_control")),
        {"max_deliver": 2},
        *({"inactive_threshold": one} for one in (0, True, 3600 * 10**9)),
        {"mem_storage": True},
        {"pause_until": "2099-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_a_site_creates_no_consumer_but_one_for_its_copy(change: dict[str, Any]) -> None:
    request = json.dumps({"stream_name": "LOGS", "config": COPY | change}).encode()

    with pytest.raises(RefusedRequest):
        rewrite_copy_request(request, "centre")


@pytest.mark.nats
async def test_lines_pushed_to_a_request_subject_are_no_requests(connection: Connection) -> None:
    heard, listens = list[bytes](), asyncio.Event()

    async def handle(message: Message) -> None:
        heard.append(message.data)
        await connection.publish(message.reply, b"{}")

    listening = asyncio.create_task(listen(connection, {"logship.x": handle}, listens))
    await listens.wait()
    for line in (b"a line", b"another"):
        await connection.ask("logs.p0.web01", line)
    for policy in ("none", "explicit"):
        config = {"name": policy, "ack_policy": policy, "deliver_subject": "logship.x"}
        body = {"stream_name": "LOGS", "config": config}
        await connection.api(f"CONSUMER.CREATE.LOGS.{policy}", body)
        async with asyncio.timeout(20):
            info = f"CONSUMER.INFO.LOGS.{policy}"
            while (await connection.api(info))["delivered"]["stream_seq"] < 2:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
    await connection.request("logship.x", b"a request")

    assert heard == [b"a request"]
    listening.cancel()
