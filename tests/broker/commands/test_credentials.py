"""`logbroker credentials` as an operator uses it, on a folder where no broker runs."""

import json
import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from broker.auth.files import load_credentials
from nats_logship.wire.subjects import make_inbox
from tests.broker.conftest import Call, logbroker

HOST = 'wéb"01\\example'


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    Path("store").mkdir(0o750)
    return lambda *arguments: logbroker("credentials", *arguments, "--store-dir", "store")


def done(ended: "CompletedProcess[str]") -> str:
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def refused(ended: "CompletedProcess[str]") -> str:
    assert ended.returncode in {1, 2}, ended
    return ended.stderr


def names() -> list[str]:
    return [str(one.holder) for one in load_credentials(Path("store")).credentials]


def test_the_first_credential_is_a_file_that_only_its_owner_can_read(call: Call) -> None:
    output = done(call("add", "host", HOST, "--server", "nats://b1:4222,nats://b2:4222"))

    file = Path(f"host-{HOST}.toml")
    assert f"wrote the credential of host {HOST} to {file}" in output
    assert "from now on the broker accepts nobody without a credential" in output
    assert "no broker runs on" in output
    settings = tomllib.loads(file.read_text())
    assert {**settings, "nkey_seed": settings["nkey_seed"][:2]} == {
        "server": ["nats://b1:4222", "nats://b2:4222"],
        "host": HOST,
        "inbox_prefix": make_inbox(HOST),
        "api_prefix": "JS.LOGS.API",
        "nkey_seed": "SU",
    }
    assert file.stat().st_mode & 0o777 == 0o600
    stored = Path("store/credentials.json")
    assert settings["nkey_seed"] not in output + stored.read_text()
    modes = [path.stat().st_mode & 0o777 for path in (stored, stored.parent)]
    assert modes == [0o640, 0o750]


def test_standard_output_gets_the_secret_and_nothing_else(call: Call) -> None:
    result = call("add", "host", "a", "--output", "-")

    done(result)
    assert tomllib.loads(result.stdout)["host"] == "a"
    assert "from now on the broker accepts nobody" in result.stderr
    assert list(Path().glob("host-*")) == []


def test_nothing_changes_if_a_file_exists(call: Call) -> None:
    Path("host-b.toml").write_text("mine")

    output = refused(call("add", "host", "a", "b"))

    assert "host-b.toml exists already; --force replaces it" in output
    assert not Path("host-a.toml").exists()
    assert names() == []
    done(call("add", "host", "a", "b", "--force"))
    assert "nkey_seed" in Path("host-b.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["add", "host"], "give the name of a host", id="no name"),
        pytest.param(["add", "host", "a b"], "holds white space", id="name"),
        pytest.param(["add", "admin", "../x"], "admin name", id="path"),
        pytest.param(["add", "host", "known"], "host known has a credential already", id="known"),
        pytest.param(
            ["add", "receiver", "central"],
            "give the partitions of receiver central",
            id="partitions",
        ),
        pytest.param(["add", "host", "a", "--partition", "3"], "a host has none", id="host's"),
        pytest.param(["add", "host", "a", "b", "--output", "-"], "writes one", id="printed"),
        *(
            pytest.param(["add", "host", *words], "there is no directory nosuch; ", id=words[-1])
            for words in (["a", "--output", "nosuch/"], ["a", "b", "--output", "nosuch"])
        ),
        pytest.param(["add", "host", "a", "--output", "no/a.toml"], "directory no;", id="parent"),
        pytest.param(["revoke", "host", "known", "x"], "no credential of host x", id="one unknown"),
    ],
)
def test_a_refused_command_changes_nothing(call: Call, arguments: list[str], text: str) -> None:
    done(call("add", "host", "known"))
    before = Path("store/credentials.json").read_bytes()

    output = refused(call(*arguments))

    assert text in output
    assert Path("store/credentials.json").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["host-known.toml", "store"]


@pytest.mark.parametrize("command", ["add", "revoke", "list"])
def test_a_mistyped_store_is_not_created(call: Call, tmp_path: Path, command: str) -> None:
    done(call("add", "host", "known"))
    named = () if command == "list" else ("host", "known")

    ended = logbroker("credentials", command, *named, "--store-dir", "stores")

    assert f"there is no directory {tmp_path / 'stores'}; check --store-dir" in refused(ended)
    assert sorted(path.name for path in Path().iterdir()) == ["host-known.toml", "store"]


def test_a_store_where_no_broker_has_run_is_reported(call: Call, tmp_path: Path) -> None:
    warning = f"no broker has run in {tmp_path / 'store'} yet: unless it is a new"

    assert warning in done(call("add", "host", "a"))
    assert warning not in done(call("add", "host", "b"))


def test_the_last_credential_is_revoked_only_after_a_yes(call: Call) -> None:
    done(call("add", "host", "a", "b", "c"))
    done(call("revoke", "host", "a"))

    output = refused(call("revoke", "host", "b", "c"))

    assert "nothing was changed" in output
    assert "no other credential than host b, host c" in output
    assert names() == ["host b", "host c"]
    assert "the broker accepts nobody" in done(call("revoke", "host", "b", "c", "--yes"))
    assert names() == []


def test_the_json_names_what_was_added_and_revoked(call: Call) -> None:
    given = json.loads(call("add", "host", "a", "b", "--json").stdout)
    (left,) = json.loads(call("revoke", "host", "a", "--json").stdout)

    assert [one["name"] for one in given["credentials"]] == ["a", "b"]
    assert given["files"] == ["host-a.toml", "host-b.toml"]
    assert [one["name"] for one in left["credentials"]] == ["b"]


def test_force_replaces_partitions_and_secret_of_a_receiver_in_one_change(call: Call) -> None:
    done(call("add", "receiver", "central", "--partition", "0,1"))
    (before,) = load_credentials(Path("store")).credentials

    refused(call("add", "receiver", "central", "--partition", "1"))
    done(call("add", "receiver", "central", "--partition", "1", "--force"))

    (after,) = load_credentials(Path("store")).credentials
    assert (before.partitions, after.partitions) == ((0, 1), (1,))
    assert before.nkey != after.nkey
