"""Any settings file either gives settings that a real nats-server takes, or is refused with the line to mend."""

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.configuration import load, name_of
from broker.app.exits import ConfigurationError
from broker.server.conf import render
from broker.server.process import find
from broker.server.resolve import ServerAccess, resolve
from broker.server.store import measure
from broker.settings import BrokerSettings

NOW = datetime(2026, 11, 21, tzinfo=UTC)
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
possible = {
    "partitions": st.integers(1, 20),
    "max_age": st.sampled_from(["1s", "90m", "1d", "100000d", "0.5d"]),
    "max_bytes": st.sampled_from(["1", "5GB", "100MiB"]) | st.integers(1, 2**62),
    "discard": st.sampled_from(["old", "new"]),
    "replicas": st.integers(0, 6),
    "listen": st.sampled_from(["127.0.0.1:0", "[::1]:4222", "localhost:9"]),
    "server_name": st.text(max_size=20),
    "memory": st.sampled_from(["64MiB", "1GB"]),
}
likely = st.sampled_from(sorted(possible)).flatmap(
    lambda name: st.tuples(st.just(name), possible[name])
)
unlikely = st.tuples(st.sampled_from([*NAMES, "max_agee", "a.b", "[table]", ""]), hostile)


def written(name: str, value: object) -> str:
    return f"{name} = {value if name in {'inf', 'nan'} else json.dumps(value, ensure_ascii=False)}"


lines = st.lists(likely, max_size=6, unique_by=lambda pair: pair[0]).map(
    lambda pairs: [written(*pair) for pair in pairs]
)
comments = st.sampled_from(["", "# max_age = 1", "  "])
texts = st.builds(
    lambda good, more, odd: "\n".join([*good, *more, *(written(*pair) for pair in odd)]),
    lines,
    st.lists(comments, max_size=2),
    st.lists(unlikely, max_size=1),
)
broken = st.builds(
    lambda text, place, junk: (
        text[: place % (len(text) + 1)] + junk + text[place % (len(text) + 1) :]
    ),
    texts,
    st.integers(0, 300),
    st.text(alphabet="[]{}=\"'#\n\\,.\x00é", min_size=1, max_size=3),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "logbroker.toml"


def read(path: Path, text: str) -> BrokerSettings | None:
    """Return the settings of a text, None where it is refused with a line; anything else fails the test."""
    path.write_text(text, "utf-8", newline="")
    try:
        return load(BrokerSettings, {}, path)
    except ConfigurationError as error:
        said = str(error)
    assert re.match(rf".*/{PLACE}", said), (text, said)
    return None


@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(texts | broken)
def test_any_file_gives_settings_or_is_refused_with_its_line(path: Path, text: str) -> None:
    read(path, text)


@settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(lines)
def test_settings_that_are_taken_make_a_configuration_that_nats_server_takes(
    path: Path, text: list[str]
) -> None:
    taken = read(path, "\n".join(text))
    if taken is None:
        return
    conf = resolve(taken, ServerAccess(path.parent), measure(path.parent), NOW)
    whole = path.with_name("nats-server.conf")
    whole.write_text(render(conf), "utf-8")

    checked = subprocess.run([find(None), "-t", "-c", whole], capture_output=True, check=False)

    assert checked.returncode == 0, (text, checked.stderr)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_age": "300000d"}, "--max-age: .*100000d"),
        ({"max_bytes": "99999PB"}, "--max-bytes: .*less than or equal"),
        ({"route": ("http://b2:1",)}, "--route"),
        ({"route": ("nats-route://b2:0",)}, "--route"),
        ({"site_remote": ("nats-leaf://hub",)}, "--site-remote"),
        ({"source": ("a b",)}, "--source"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    options: dict[str, object], reason: str
) -> None:
    with pytest.raises(click.UsageError, match=reason):
        load(BrokerSettings, options, None)


def test_a_secret_in_a_route_is_refused_and_not_repeated() -> None:
    with pytest.raises(click.UsageError, match="--cluster-secret-file") as refused:
        load(BrokerSettings, {"route": ("nats-route://u:s3cret@b2:6222",)}, None)

    assert "s3cret" not in str(refused.value)
