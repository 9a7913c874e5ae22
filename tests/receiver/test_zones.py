"""Names of time zones."""

from datetime import UTC

import pytest

from receiver.zones import named_zone, zone_name


def test_a_zone_is_known_by_its_name() -> None:
    assert zone_name("Europe/Berlin") == "Europe/Berlin"
    assert named_zone("UTC") is UTC


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/paris", "Europe/Paris"),
        ("tokyo", "Asia/Tokyo"),
        ("nonsense", "Europe/Berlin"),
        ("../../etc/passwd", "Europe/Berlin"),
    ],
)
def test_an_unknown_zone_is_told_with_one_that_exists(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"not known; give UTC, local, or a name such as {meant}"):
        zone_name(given)


def test_local_is_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")

    assert zone_name("local") == "America/New_York"
