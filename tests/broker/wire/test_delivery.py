"""Where a message stands in its stream, by the subject that acknowledges it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.delivery import Delivery, parse


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
def test_a_reply_subject_of_either_form_says_where_a_message_stands(
    reply: str, delivery: Delivery | None
) -> None:
    assert parse(reply) == delivery


@given(st.text(max_size=60))
def test_any_subject_is_a_delivery_or_not(text: str) -> None:
    assert isinstance(parse(f"$JS.ACK.{text}"), Delivery | None)
