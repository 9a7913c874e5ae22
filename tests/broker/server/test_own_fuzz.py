"""Settings are found in a configuration of one's own where nats-server finds them, which says so of those it does not know."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.exits import ConfigurationError
from broker.server.binary import find
from broker.server.conf_own import keys_of
from broker.server.own import included

pytestmark = pytest.mark.nats

UNNAMED = re.compile(r"""['"]?(zz\d)['"]?[:=]\[""")
UNKNOWN = re.compile(r'^(?:nats-server: )?.*:(\d+):\d+: unknown field "(.*)"$', re.MULTILINE)

scalars = st.sampled_from(
    [
        "1",
        "-4",
        "1.5",
        "true",
        "10MB",
        "text",
        "a:b",
        "nats://h:4222",
        "2026-11-21T10:00:00Z",
        '"a # b"',
        "'c // d'",
        '"q\\"}"',
        "'{'",
        '"x, y; z"',
        '""',
    ]
)
nested = st.recursive(  # an empty list it passes over
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda many: f"[{', '.join(many)}]"),
        st.lists(inner, min_size=1, max_size=3).map(lambda many: f"[ # ]\n{chr(10).join(many)}\n]"),
        st.lists(inner, max_size=3).map(
            lambda many: "{" + ", ".join(f"k{n}: {one}" for n, one in enumerate(many)) + "}"
        ),
        st.lists(inner, max_size=3).map(
            lambda many: (
                "{ // }\n" + "\n".join(f"'k{n}' {one}" for n, one in enumerate(many)) + "\n}"
            )
        ),
    ),
    max_leaves=5,
)
values = nested | st.just("(\nlisten: 3\n }\n)")
separators = st.sampled_from([": ", "=", " = ", " ", ":\t"])
ends = st.sampled_from(["\n", " # zz: 1\n", "\n\n// port: 4\n", " // end\n", ";\n", ",\n"])
quotes = st.sampled_from(["", '"', "'"])


@st.composite
def configurations(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(["", "\n", "# listen: 1\n"]))
    for number in range(draw(st.integers(1, 5))):
        quote, value = draw(quotes), draw(values)
        end = "\n" if value.startswith("(") else draw(ends)
        text += f"{quote}zz{number}{quote}{draw(separators)}{value}{end}"
    return text


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own") / "own.conf"


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configurations())
def test_settings_are_found_where_nats_server_finds_them(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    asked = subprocess.run(
        [find(None), "-t", "-c", path], capture_output=True, check=False, text=True
    )
    told = {(int(line), name) for line, name in UNKNOWN.findall(asked.stderr)}

    # it does not name a key with a list right behind its sign
    unnamed = {
        (number, name)
        for number, line in enumerate(text.split("\n"), 1)
        for name in UNNAMED.findall(line)
    }
    if told:
        assert {(key.line, key.name) for key in keys_of(text)} - unnamed == told - unnamed, (
            asked.stderr
        )


junk = st.text(alphabet="{}[]()\"'#/\\;,:=$ \n\x00é", min_size=1, max_size=4)


@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
@given(configurations(), junk, st.integers(0, 200))
def test_any_text_is_included_or_refused_in_one_line(
    path: Path, text: str, more: str, place: int
) -> None:
    place %= len(text) + 1
    path.write_text(f"{text[:place]}{more}{text[place:]}", "utf-8")

    try:
        line = included(find(None), path, path.parent / "store", "listen: 1")
    except ConfigurationError as error:
        line = str(error)

    assert line.startswith(("include ", str(path)))
    assert "\n" not in line
