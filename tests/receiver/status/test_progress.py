"""What is said of a receiver that is behind."""

import pytest

from receiver.status.progress import CatchingUp, Glance, bar, progress, sentence

BEGAN = Glance(at=0.0, pending=1000, messages=0, bytes=0, lag=3600.0)
BEFORE = Glance(at=10.0, pending=800, messages=300, bytes=30_000_000, lag=3000.0)


def test_rates_are_those_since_the_last_glance_and_the_share_since_the_beginning() -> None:
    now = Glance(at=20.0, pending=600, messages=700, bytes=80_000_000, lag=1800.0)

    seen = progress(BEGAN, BEFORE, now)

    assert seen == CatchingUp(
        share=700 / 1300,
        bytes_rate=5_000_000.0,
        messages_rate=40.0,
        left=600,
        lag=1800.0,
        eta=30.0,  # new ones keep coming: 20 a second fewer wait
    )
    assert sentence(seen) == (
        "catching up: 54%, 600 messages left, 30m behind, 4.8 MiB/s, ready in 30s"
    )


def test_what_grows_faster_than_it_is_received_has_no_end() -> None:
    now = Glance(at=20.0, pending=900, messages=400, bytes=31_000_000, lag=3100.0)

    assert sentence(progress(BEGAN, BEFORE, now)).endswith("falling behind")


def test_two_glances_at_one_moment_break_nothing() -> None:
    assert progress(BEGAN, BEGAN, BEGAN).eta is None


@pytest.mark.parametrize(
    ("pending", "lag", "is_behind"),
    [(0, 100.0, False), (5, 1.0, False), (5, 100.0, True)],
    ids=["nothing waits", "a moment only", "behind"],
)
def test_only_who_is_really_behind_catches_up(pending: int, lag: float, is_behind: bool) -> None:
    assert Glance(0.0, pending, 0, 0, lag).is_behind == is_behind


@pytest.mark.parametrize("width", [0, 1, 20, 60, 80, 200])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_bar_fits_any_terminal(width: int, share: float) -> None:
    drawn = bar(CatchingUp(share, 1e6, 10.0, 5, 60.0, 5.0), width)

    assert len(drawn) <= max(width - 1, 0)
    if width >= 80:
        assert drawn.startswith("[")
        inside = drawn[1 : drawn.index("]")]
        assert inside.count("#") == int(len(inside) * share)
