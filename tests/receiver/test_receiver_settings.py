"""What the settings of logreceiver make of what they are told."""

import click
import pytest

from broker.app.configuration import load
from receiver.settings import ReceiverSettings


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("0", (0,)),
        (["3,0", "3"], (0, 3)),
        (["1", "all"], (0, 1, 2, 3)),
        (2, (2,)),
    ],
)
def test_partitions_may_be_given_in_any_form(given: object, wanted: tuple[int, ...]) -> None:
    settings = load(ReceiverSettings, {"partition": given}, None)

    assert settings.wanted(4) == wanted


def test_the_state_belongs_to_the_files_unless_told_otherwise() -> None:
    assert str(load(ReceiverSettings, {"output": "/x"}, None).state) == "/x/.logreceiver"
    assert str(load(ReceiverSettings, {"output": "/x", "state_dir": "/y"}, None).state) == "/y"


@pytest.mark.parametrize("given", ["Europe/Berln", "europe/paris", "../../etc/passwd"])
def test_an_unknown_time_zone_is_refused(given: str) -> None:
    with pytest.raises(click.UsageError, match="not known; give UTC, local, or a name such as"):
        load(ReceiverSettings, {"time_zone": given}, None)


def test_local_is_the_time_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")

    assert load(ReceiverSettings, {"time_zone": "local"}, None).time_zone == "America/New_York"
