"""What may be asked of a consumer by those who have no right to make one that pushes."""

import json

import pytest

from broker.server.consumer_requests import pulled_only

PULLED = {"name": "shipper-web01", "filter_subject": "logs.*.web01", "ack_policy": "none"}


def test_a_consumer_that_is_pulled_from_is_asked_for_as_it_was() -> None:
    request = {"stream_name": "LOGS", "config": PULLED, "action": "create"}

    taken = pulled_only(json.dumps(request).encode())

    assert isinstance(taken, bytes)
    assert json.loads(taken) == request


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
        b'{"config": {}, "pedantic": true}',
        b'{"config": []}',
        b"[]",
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"config": {"description": "' + b"x" * 100_000 + b'"}}',
    ],
)
def test_what_could_push_or_cannot_be_read_is_refused(request_: bytes) -> None:
    assert isinstance(pulled_only(request_), str)


def test_a_refusal_breaks_no_line_of_the_log() -> None:
    why = pulled_only(b'{"config": {"a\\nERROR all is lost\\u001b": 1}}')

    assert isinstance(why, str)
    assert why.isprintable()


@pytest.mark.parametrize("depth", range(900, 1000, 10))
def test_a_request_of_any_depth_is_judged(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth

    assert isinstance(pulled_only(b'{"config": {"metadata": ' + deep + b"}}"), bytes | str)


def test_of_a_name_that_is_there_twice_the_server_is_told_the_one_that_was_judged() -> None:
    taken = pulled_only(b'{"config": {"deliver_subject": "x"}, "config": {"name": "a"}}')

    assert taken == b'{"config": {"name": "a"}}'
