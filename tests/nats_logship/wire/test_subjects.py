import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.wire.delivery import Delivery, parse_reply
from nats_logship.wire.subjects import (
    InvalidHost,
    InvalidSubject,
    Subject,
    shipper_consumer,
    validate_host,
)


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "..", "../../etc/x", "a/b", ".hidden", "end.", "a..b", "a*", ">", "a.>"),
        *("a b", "a\tb", "a\nb", "a\x00b", "a\u2028b", "a\u200bb", "\udc80"),
        *("x" * 254, "ü" * 127),
    ],
)
def test_a_host_that_could_escape_its_subject_or_folder_is_refused(host: str) -> None:
    with pytest.raises(InvalidHost):
        validate_host(host)


@given(st.text())
def test_an_accepted_host_is_one_file_name_and_survives_its_subject(host: str) -> None:
    try:
        subject = Subject.for_host(host, 10)
    except InvalidHost:
        return

    assert "/" not in host
    assert host not in {".", ".."}
    assert Subject.parse(str(subject)) == subject
    assert not any(token in {"", "*", ">"} for token in str(subject).split("."))


@pytest.mark.parametrize(
    "subject",
    [
        *("logs", "logs.p1", "logs.3.web", "logs.p03.web", "logs.p-1.web", "log.p1.web"),
        *("logs.p1234567.x", "logs.p\u0661.x"),
    ],
)
def test_a_subject_that_no_shipper_uses_is_refused(subject: str) -> None:
    with pytest.raises((InvalidSubject, InvalidHost)):
        Subject.parse(subject)


def test_hosts_that_no_consumer_can_be_named_after_have_different_hashes() -> None:
    hosts = ["web.example.net", "web_example.net", "a\\b", "é", "x" * 253]

    names = {shipper_consumer(host) for host in hosts}

    assert len(names) == len(hosts)
    assert all(re.fullmatch("shipper-=[0-9a-f]{32}", name) for name in names)


@pytest.mark.parametrize(
    ("reply", "delivery"),
    [
        ("$JS.ACK.LOGS.receiver-p0.1.22.3.444.5", Delivery(1, 22, 3, 444, 5)),
        ("$JS.ACK._.ACCHASH.LOGS.receiver-p0.1.22.3.444.5.token", Delivery(1, 22, 3, 444, 5)),
        ("$JS.ACK.hub.ACCHASH.LOGS.receiver-p0.2.22.3.444.5", Delivery(2, 22, 3, 444, 5)),
        ("", None),
        ("_INBOX.abc", None),
        ("$JS.ACK.LOGS.receiver-p0.1.22", None),
        ("$JS.ACK.LOGS.receiver-p0.1.22.x.444.5", None),
    ],
)
def test_a_reply_subject_of_either_form_has_the_numbers_of_a_delivery(
    reply: str, delivery: Delivery | None
) -> None:
    assert parse_reply(reply) == delivery


@given(st.text(max_size=60))
def test_any_subject_is_a_delivery_or_not(text: str) -> None:
    assert isinstance(parse_reply(f"$JS.ACK.{text}"), Delivery | None)
