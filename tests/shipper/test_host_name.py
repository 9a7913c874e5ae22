"""Host names: where they are read from, and those that do not identify one machine."""

from pathlib import Path

import pytest

from nats_logship.app.configuration import load
from shipper.host_name import find_shared_name
from shipper.settings import ShipperSettings
from tests.shipper.logs import run


@pytest.mark.parametrize(
    ("host", "is_shared"),
    [
        *(
            (name, True)
            for name in ("localhost", "localhost.localdomain", "LOCALHOST", "127.0.0.1")
        ),
        *((name, True) for name in ("localhost6.localdomain6", "ip6-localhost", "127.0.1.1")),
        *((name, False) for name in ("web01", "localhost.example.net", "mylocalhost", "10.0.0.1")),
    ],
)
def test_a_name_that_every_machine_has_for_itself_is_recognised(host: str, is_shared: bool) -> None:
    assert bool(find_shared_name(host)) is is_shared


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of files with names, good and bad; variables are like them."""
    monkeypatch.setenv("NODE_NAME", "node-7")
    monkeypatch.setenv("EMPTY", " ")
    for name, text in {"good": "node-7\n", "empty": "\n", "two": "a\nb\n", "bad": "a b"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin").write_bytes(b"\xff")
    return tmp_path


@pytest.mark.parametrize("value", ["@{}/good", "$NODE_NAME", "node-7"])
@pytest.mark.parametrize("way", ["option", "variable", "file"])
def test_a_host_may_be_in_a_file_or_a_variable(
    names: Path, monkeypatch: pytest.MonkeyPatch, way: str, value: str
) -> None:
    value, config = value.format(names), None
    if way == "variable":
        monkeypatch.setenv("LOGSHIPPER_HOST", value)
    if way == "file":
        (config := names / "config").write_text(f"host = {value!r}")

    settings = load(ShipperSettings, {"host": value} if way == "option" else {}, config)

    assert settings.host == "node-7"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("@{}/none", "--host: cannot read {}/none: No such file or directory"),
        ("@", "--host: cannot read a file without a name: No such file or directory"),
        ("@{}", "--host: cannot read {}: Is a directory"),
        ("@{}/empty", "--host: {}/empty is empty; it must hold the name of this host"),
        ("@{}/two", "--host: {}/two has more than one line; it must hold the name of this host "),
        ("@{}/latin", "--host: {}/latin is not text in UTF-8"),
        ("@{}/bad", "--host: in {}/bad: host name 'a b' holds white space"),
        ("$NO_SUCH", "--host: the environment variable NO_SUCH is not set, or empty"),
        ("$EMPTY", "--host: the environment variable EMPTY is not set, or empty"),
        ("$NODE_NAME-x", "--host: '$NODE_NAME-x' is not a variable alone, as in $NODE_NAME"),
    ],
)
def test_a_host_that_cannot_be_found_out_is_one_clear_line(
    names: Path, value: str, text: str
) -> None:
    done = run("check", "--file", "/a.log", "--host", value.format(names))

    assert done.returncode == 2
    assert text.format(names) in done.stderr
