"""A request for a consumer is passed on only where the consumer cannot push."""

import pytest

from broker.server.requests import pulled_only


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
        b'{"config": {"filter_subject": ' + b"[" * 950 + b"]" * 950 + b', "flow_control": 1}}',
        b'{"config": {"description": "' + b"x" * 100_000 + b'"}}',
    ],
)
def test_what_could_push_or_cannot_be_read_is_refused(request_: bytes) -> None:
    assert isinstance(pulled_only(request_), str)


def test_the_server_is_told_what_was_judged_and_the_log_on_one_line() -> None:
    twice = b'{"config": {"deliver_subject": "x"}, "config": {"name": "a"}}'

    assert pulled_only(twice) == b'{"config": {"name": "a"}}'
    assert str(pulled_only(b'{"config": {"a\\nERROR all is lost\\u001b": 1}}')).isprintable()
