"""Names of time zones."""

from datetime import UTC
from pathlib import Path

import pytest

from receiver.zones import named_zone, zone_name


def test_a_zone_is_known_by_its_name() -> None:
    assert zone_name("Europe/Berlin") == "Europe/Berlin"
    assert named_zone("UTC") is UTC


@pytest.mark.parametrize("given", ["Europe/Berln", "europe/paris", "../../etc/passwd"])
def test_an_unknown_zone_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="not known; give UTC, local, or a name such as"):
        zone_name(given)


@pytest.mark.parametrize(
    ("kind", "zone"), [("link", "Asia/Tokyo"), ("copy", "Europe/Paris"), ("nothing", "UTC")]
)
def test_without_a_variable_local_is_what_the_machine_is_set_to(
    kind: str, zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr("receiver.zones._LOCALTIME", tmp_path / "localtime")
    monkeypatch.setattr("receiver.zones._TIMEZONE", tmp_path / "timezone")
    if kind == "link":
        (tmp_path / "localtime").symlink_to(tmp_path / "zoneinfo/Asia/Tokyo")
    elif kind == "copy":
        (tmp_path / "localtime").write_bytes(b"TZif2")
        (tmp_path / "timezone").write_text("Europe/Paris\n")

    assert zone_name("local") == zone


def test_local_is_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")

    assert zone_name("local") == "America/New_York"
