"""The interval of rounds that a broker sets: decided as a value, and for fleets that are played."""

import random
from collections.abc import Callable, Iterator

import pytest

from broker.server.intervals import IntervalState, Load, RoundLimits, compute_rate, decide_interval
from nats_logship.app.timestamps import SECOND

LIMITS = RoundLimits(rounds=200, longest=2.0)


def decide_often(state: IntervalState, samples: int, rate: float, hosts: int) -> list[float]:
    """Return the interval after each of so many equal samples."""
    found = []
    for _ in range(samples):
        state = decide_interval(state, Load(rate, hosts), LIMITS)
        found.append(state.seconds)
    return found


@pytest.mark.parametrize(
    ("seconds", "rate", "hosts", "found"),
    [
        pytest.param(0, 200, 1000, [0, 0, 0], id="few rounds need no interval"),
        pytest.param(0, 500, 100, [0.5, 0.5], id="100 hosts all the time"),
        pytest.param(0, 5000, 1000, [2, 2], id="never longer than the longest"),
        pytest.param(0, 500, 1000, [0.5], id="1000 hosts now and then"),
        pytest.param(0, 900, 3, [0, 0], id="a few clients that no interval slows down"),
        pytest.param(0, 250, 5, [0.025], id="a few loud hosts"),
        pytest.param(0.025, 200, 5, [0.025], id="which send the wanted rounds then"),
        pytest.param(0.5, 240, 1000, [0.5], id="a small change up"),
        pytest.param(0.5, 160, 1000, [0.5] * 9, id="a small change down"),
        pytest.param(2, 0, 1000, [*5 * [2], *6 * [1], 0.5], id="down slowly"),
        pytest.param(1, 140, 1000, [*5 * [1], 0.7], id="down to what the rate asks for"),
        pytest.param(0.03, 20, 1000, [*5 * [0.03], 0], id="off below what hosts keep anyway"),
    ],
)
def test_the_interval_follows_the_rate_of_rounds(
    seconds: float, rate: float, hosts: int, found: list[float]
) -> None:
    assert decide_often(IntervalState(seconds), len(found), rate, hosts) == found


def test_one_busy_sample_keeps_the_interval_from_becoming_shorter() -> None:
    state = IntervalState(1.0)
    for rate in (*5 * (50,), 190, *4 * (50,), 140, 50):
        state = decide_interval(state, Load(rate, 1000), LIMITS)

    assert state.seconds == 0.7
    assert decide_interval(state, Load(5000, 1000), RoundLimits(0, 2.0)) == IntervalState()


def test_a_rate_is_known_only_between_samples_of_the_same_streams() -> None:
    before = {("LOGS_0", "a"): (10 * SECOND, 100), ("LOGS_1", "b"): (10 * SECOND, 50)}

    def rate(first: int, second: int, created: str = "b", at: int = 20) -> float | None:
        after = {("LOGS_0", "a"): (20 * SECOND, first), ("LOGS_1", created): (at * SECOND, second)}
        return compute_rate(before, after)

    assert rate(200, 150) == 20.0
    assert rate(200, 450, at=50) == 20.0  # that one was not asked for long
    assert rate(100, 50) == 0.0
    assert rate(200, 40) is rate(200, 150, "c") is rate(200, 150, at=10) is None


def play(
    hosts: Callable[[int], int], lines: float, seconds: int = 900
) -> Iterator[tuple[float, float]]:
    """Yield interval and rate of a fleet: `hosts(second)` of them write `lines` a second at random.

    A host sends its next round when a line has come and its interval is over.
    """
    chance, state, known = random.Random(7), IntervalState(), 0
    for second in range(0, seconds, 10):
        count = hosts(second)
        of_each = 1 / (max(0.2, state.seconds) + 1 / lines) if count else 0.0
        rate = count * of_each * chance.uniform(0.9, 1.1)
        known = max(known, count)
        state = decide_interval(state, Load(rate, known), LIMITS)
        yield state.seconds, rate


@pytest.mark.parametrize(
    ("hosts", "lines", "least", "most"),
    [
        (30, 5, 0, 0),
        (100, 5, 0.25, 0.5),
        (100, 1, 0, 0),
        (1000, 5, 1.6, 2),
        (1000, 1, 1.6, 2),
        (5000, 5, 1.6, 2),
        (5000, 1, 1.6, 2),
    ],
)
def test_a_fleet_that_starts_gets_one_interval_and_keeps_it(
    hosts: int, lines: float, least: float, most: float
) -> None:
    found = [seconds for seconds, _ in play(lambda second: min(hosts, hosts * second // 60), lines)]

    settled = found[30:]
    assert len({*settled}) == 1
    assert least <= settled[0] <= most
    assert len({*found}) <= 6


def test_a_fleet_that_leaves_gets_its_own_intervals_back_within_minutes() -> None:
    found = [one for one, _ in play(lambda second: 1000 if second < 300 else 10, 5)]

    assert found[29] == 2
    assert found[29:] == sorted(found[29:], reverse=True)
    assert found[-1] == 0


def test_bursts_do_not_move_the_interval_up_and_down() -> None:
    played = [*play(lambda second: 1000 if second % 60 < 20 else 100, 5)]

    assert {seconds for seconds, _ in played[6:]} == {2.0}
    assert max(rate for _, rate in played[6:]) < 600
