import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import ask

Call = Callable[..., Any]


@pytest.mark.parametrize(
    "options",
    [
        ["--partitions", "0"],
        ["--max-age", "0s"],
        ["--max-bytes", "5Q"],
        ["--max-bytes", "0"],
        ["--listen", "here"],
        ["--memory", "-1"],
        ["--server-name", "a b"],
        ["--colour", "blue"],
    ],
    ids=" ".join,
)
def test_a_bad_option_is_one_line_and_exit_code_2(
    tmp_path: Path, logbroker_inside: Call, options: list[str]
) -> None:
    ended = logbroker_inside("run", "--store-dir", tmp_path / "s", *options)

    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert options[0] in ended.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("command", ["status", "apply"])
def test_a_broker_that_is_away_is_one_line_and_exit_code_1(
    logbroker_inside: Call, command: str
) -> None:
    ended = logbroker_inside(command, "--server", "nats://127.0.0.1:1")

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "no broker at nats://127.0.0.1:1" in ended.stderr


@pytest.mark.nats
def test_apply_sets_up_a_foreign_server_once(logbroker_inside: Call, fresh_url: str) -> None:
    options = ("apply", "--server", fresh_url, "--partitions", "2")

    planned = json.loads(logbroker_inside(*options, "--dry-run", "--json").stdout)
    dry, first, second = (logbroker_inside(*options, *more) for more in (["--dry-run"], [], []))

    assert [one.returncode for one in (dry, first, second)] == [0, 0, 0]
    assert {one["kind"] for one in planned} == {"stream", "consumer", "entry"}
    assert {one["action"] for one in planned} == {"create"}
    assert "+ create stream LOGS" in first.stdout
    assert dry.stdout == first.stdout
    assert second.stdout == "nothing to do\n"


def test_the_help_of_run_fits_on_two_screens(logbroker_inside: Call) -> None:
    shown = logbroker_inside("run", "--help").stdout.splitlines()

    assert len(shown) <= 104
    for title in ("Server:", "Streams:", "Security:", "Cluster:", "Other sites:", "Logging:"):
        assert title in shown


@pytest.mark.nats
def test_what_deletes_is_asked_about_and_refused_where_nobody_can_answer(
    logbroker_inside: Call, logs_url: str
) -> None:
    ask(logs_url, *[("logs.p1.web01", b"line\n")] * 3)
    options = ("apply", "--server", logs_url, "--partitions", "2")
    options += ("--discard", "old", "--max-bytes", "100")

    dry, refused, done = (
        logbroker_inside(*options, *more) for more in (["--dry-run"], [], ["--yes"])
    )

    assert [one.returncode for one in (dry, refused, done)] == [0, 2, 0]
    assert "    ! deletes the oldest beyond max_bytes 100" in dry.stdout
    assert refused.stdout == done.stdout
    assert "--yes" in refused.stderr


@pytest.mark.nats
def test_the_configuration_goes_out_as_files_and_comes_back(
    logbroker_inside: Call, logs_url: str, tmp_path: Path
) -> None:
    to = ("--server", logs_url)
    folder = tmp_path / "configuration"

    exported = logbroker_inside("export", *to, folder)
    stream = json.loads((folder / "LOGS.json").read_text("utf-8"))
    (folder / "LOGS.json").write_text(json.dumps(stream | {"max_age": 10**15}), "utf-8")
    imported = logbroker_inside("import", *to, folder)

    assert [one.returncode for one in (exported, imported)] == [0, 0]
    assert sorted(path.name for path in folder.iterdir()) == [
        "KV_LOGS_CONFIG.json",
        "KV_LOGS_OFFSETS.json",
        "KV_LOGS_POSITIONS.json",
        "LOGS.json",
    ]
    assert imported.stdout == "~ update stream LOGS\n    - max_age: 1d  + max_age: 11d13h46m40s\n"
