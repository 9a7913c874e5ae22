"""`logbroker credentials` as an operator uses it, on a folder where no broker runs."""

import json
import logging
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.app.exits import Exit, OperatorError
from broker.auth.files import load_credentials
from broker.cli import group

Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    monkeypatch.chdir(tmp_path)
    handlers, level, hook = list(logging.root.handlers), logging.root.level, sys.excepthook

    def called(command: str, *arguments: str) -> Result:
        return CliRunner().invoke(
            group, ["credentials", command, *arguments, "--store-dir", "store"]
        )

    yield called
    logging.root.handlers[:] = handlers  # a command sends its log where its own output went
    logging.root.setLevel(level)
    sys.excepthook = hook


def done(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(result: Result) -> str:
    if isinstance(result.exception, OperatorError):
        return str(result.exception)
    assert result.exit_code == Exit.USAGE, (result.output, result.exception)
    return result.output


def names() -> list[str]:
    return [str(one.holder) for one in load_credentials(Path("store")).credentials]


def test_the_first_credential_closes_the_door_and_is_a_file_that_nobody_else_reads(
    call: Call,
) -> None:
    said = done(call("add", "host", "web01", "--server", "nats://b1:4222"))

    assert "host web01: its credential is host-web01.toml" in said
    assert "from now on nobody gets in without a credential" in said
    assert "no broker runs on" in said
    settings = tomllib.loads(Path("host-web01.toml").read_text())
    assert {**settings, "nkey_seed": settings["nkey_seed"][:2]} == {
        "server": ["nats://b1:4222"],
        "host": "web01",
        "inbox_prefix": "_INBOX_web01",
        "api_prefix": "JS.LOGS.API",
        "nkey_seed": "SU",
    }
    assert Path("host-web01.toml").stat().st_mode & 0o777 == 0o600
    assert settings["nkey_seed"] not in said + Path("store/credentials.json").read_text()


def test_standard_output_gets_the_secret_and_nothing_else(call: Call) -> None:
    result = call("add", "host", "a", "--output", "-")

    done(result)
    assert tomllib.loads(result.stdout)["host"] == "a"
    assert "from now on nobody" in result.stderr
    assert list(Path().glob("host-*")) == []


def test_nothing_changes_where_a_file_is_in_the_way(call: Call) -> None:
    Path("host-b.toml").write_text("mine")

    said = refused(call("add", "host", "a", "b"))

    assert "host-b.toml is there already; --force replaces it" in said
    assert not Path("host-a.toml").exists()
    assert names() == []
    done(call("add", "host", "a", "b", "--force"))
    assert "nkey_seed" in Path("host-b.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["add", "host"], "say which host", id="no name"),
        pytest.param(["add", "host", "a b"], "holds white space", id="name"),
        pytest.param(["add", "host", "known"], "host known has a credential already", id="known"),
        pytest.param(["add", "receiver", "central"], "say which partitions", id="partitions"),
        pytest.param(["add", "host", "a", "--partition", "3"], "a host has none", id="host's"),
        pytest.param(["add", "host", "a", "b", "--output", "-"], "takes one", id="printed"),
        pytest.param(["revoke", "host", "known", "x"], "no credential of host x", id="one unknown"),
    ],
)
def test_what_cannot_be_done_changes_nothing(call: Call, arguments: list[str], words: str) -> None:
    done(call("add", "host", "known"))
    before = Path("store/credentials.json").read_bytes()

    said = refused(call(*arguments))

    assert words in said
    assert Path("store/credentials.json").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["host-known.toml", "store"]


def test_programs_are_told_what_was_given_and_revoked(call: Call) -> None:
    given = json.loads(call("add", "host", "a", "b", "--json").stdout)
    (left,) = json.loads(call("revoke", "host", "a", "--json").stdout)

    assert [one["name"] for one in given["credentials"]] == ["a", "b"]
    assert given["files"] == ["host-a.toml", "host-b.toml"]
    assert [one["name"] for one in left["credentials"]] == ["b"]


def test_a_receiver_is_given_other_partitions_with_a_new_secret_in_one_change(call: Call) -> None:
    done(call("add", "receiver", "central", "--partition", "0,1"))
    (before,) = load_credentials(Path("store")).credentials

    refused(call("add", "receiver", "central", "--partition", "1"))
    done(call("add", "receiver", "central", "--partition", "1", "--force"))

    (after,) = load_credentials(Path("store")).credentials
    assert (before.partitions, after.partitions) == ((0, 1), (1,))
    assert before.nkey != after.nkey
