"""Agents are ordered by their start."""

from shipper.publish.messages import AgentId


def test_what_str_writes_parse_reads() -> None:
    agent = AgentId(1_700_000_000_000, "0badcafe")

    assert AgentId.parse(str(agent)) == agent


def test_what_no_shipper_wrote_is_no_agent() -> None:
    assert [AgentId.parse(text) for text in ("", "x", "1-", "-0badcafe", "1-0BADCAFE")] == [
        None
    ] * 5


def test_an_agent_follows_the_last_one_though_the_clock_was_set_back() -> None:
    last = AgentId(5000, "ffffffff")

    assert AgentId.following(last, 1000, "00000000") > last
    assert AgentId.following(last, 9000, "00000000").start == 9000
    assert AgentId.following(None, 1000, "00000000").start == 1000


def test_the_later_start_wins_whatever_the_tag() -> None:
    assert AgentId(2, "00000000") > AgentId(1, "ffffffff")
