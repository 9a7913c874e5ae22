"""Any settings file either gives settings, or is refused with the line to mend; what cannot be is refused by its name."""

import json
import re
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.configuration import load, name_of
from broker.app.exits import ConfigurationError
from broker.settings import BrokerSettings

NAMES = sorted(name_of(field) for field in BrokerSettings.model_fields)
PLACE = r"logbroker\.toml(: | is not valid TOML: )"

hostile = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=30),
    st.lists(st.text(max_size=5) | st.integers(), max_size=3),
    st.sampled_from(["1979-05-27", "07:32:00", "{ a = 1 }", "[[1]]", "inf", "nan", "0x10"]),
)
keys = st.sampled_from([*NAMES, "max_agee", "a.b", "[table]", ""])
junk = st.text(alphabet="[]{}=\"'#\n\\,.\x00é", max_size=3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "logbroker.toml"


@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(keys, hostile), max_size=3), junk)
def test_any_file_gives_settings_or_is_refused_with_its_line(
    path: Path, pairs: list[tuple[str, object]], end: str
) -> None:
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in pairs) + end
    path.write_text(text, "utf-8", newline="")

    try:
        load(BrokerSettings, {}, path)
    except ConfigurationError as error:
        assert re.match(rf".*/{PLACE}", str(error)), text  # noqa: PT017 - or it gives settings


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"partitions": "0"}, "--partitions"),
        ({"max_age": "0s"}, "--max-age"),
        ({"max_age": "300000d"}, "--max-age: .*100000d"),
        ({"max_bytes": "5Q"}, "--max-bytes"),
        ({"max_bytes": "0"}, "--max-bytes"),
        ({"max_bytes": "99999PB"}, "--max-bytes: .*less than or equal"),
        ({"listen": "here"}, "--listen"),
        ({"memory": "-1"}, "--memory"),
        ({"server_name": "a b"}, "--server-name"),
        ({"route": ("http://b2:1",)}, "--route"),
        ({"route": ("nats-route://b2:0",)}, "--route"),
        ({"route": ("nats-route://u:s3cret@b2:6222",)}, "--cluster-secret-file"),
        ({"site_remote": ("nats-leaf://hub",)}, "--site-remote"),
        ({"source": ("a b",)}, "--source"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name_and_shows_no_secret(
    options: dict[str, object], reason: str
) -> None:
    with pytest.raises(click.UsageError, match=reason) as refused:
        load(BrokerSettings, options, None)

    assert "s3cret" not in str(refused.value)
