import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.server_pool import Trust

SILENCE = ConnectionLost("no answer")
NO_LEADER = [Rejected(503, 0, "nobody listens"), Rejected(503, 10008, "no leader")]


def test_a_server_is_left_when_it_has_been_silent_for_long_enough_in_all() -> None:
    trust = Trust()

    assert not trust.is_lost(SILENCE, 2.5, 2.5)
    assert trust.is_lost(SILENCE, 2.5, 5.1)


@pytest.mark.parametrize("answer", [None, Rejected(503, 10077, "maximum bytes exceeded")])
def test_any_answer_of_a_leader_makes_up_for_the_silence_before(answer: Rejected | None) -> None:
    trust = Trust()
    trust.is_lost(SILENCE, 4.0, 4.0)
    trust.is_lost(answer, 0.0, 4.1)

    assert not trust.is_lost(SILENCE, 4.0, 8.1)


@pytest.mark.parametrize("error", [10071, 10164])
def test_a_refusal_for_a_write_in_hand_is_no_sign_of_a_leader(error: int) -> None:
    """A leader that was cut off has what we sent it before in hand for as long as it takes itself for the leader."""
    trust = Trust()
    trust.is_lost(SILENCE, 4.0, 4.0)

    assert not trust.is_lost(Rejected(400, error, "wrong last sequence"), 0.0, 4.1)
    assert trust.is_lost(SILENCE, 1.0, 5.1)


@pytest.mark.parametrize("refusal", NO_LEADER)
def test_a_server_that_knows_no_leader_is_left_after_the_time_of_an_election(
    refusal: Rejected,
) -> None:
    trust = Trust()

    assert [trust.is_lost(refusal, 0.0, now) for now in (10.0, 15.0, 21.9, 22.0)] == [
        *(False, False, False),
        True,
    ]
