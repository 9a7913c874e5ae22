"""Names of time zones."""

from datetime import UTC

import pytest

from receiver.zones import named_zone, zone_name


def test_a_zone_is_known_by_its_name() -> None:
    assert zone_name("Europe/Berlin") == "Europe/Berlin"
    assert named_zone("UTC") is UTC


@pytest.mark.parametrize("given", ["Europe/Berln", "europe/paris", "../../etc/passwd"])
def test_an_unknown_zone_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="not known; give UTC, local, or a name such as"):
        zone_name(given)


def test_local_is_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")

    assert zone_name("local") == "America/New_York"
