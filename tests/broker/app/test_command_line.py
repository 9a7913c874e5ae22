import os
import pty
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from broker.app.command_line import ask, given, settings_options, spread
from broker.app.exits import OperatorError
from broker.settings import RUN_FIELDS, BrokerSettings

FILE_ONLY = {
    name
    for name, field in BrokerSettings.model_fields.items()
    if name == "nats" or dict(field.json_schema_extra or {}).get("file_only")
}


@click.command()
@settings_options(BrokerSettings, RUN_FIELDS)
def command(**options: Any) -> None:
    settings = given(BrokerSettings, options)
    click.echo(f"{settings.partitions} {settings.max_age} {settings.http}")


def test_every_setting_of_a_command_is_an_option_with_its_manual_or_of_the_file_alone() -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())

    for name in RUN_FIELDS - FILE_ONLY:
        assert f"--{name.replace('_', '-')}" in text
    for name in FILE_ONLY:
        assert f"--{name.replace('_', '-')} " not in text
    assert "[default: 1d]" in text
    assert "[default: 512MiB]" in text


def test_an_option_that_is_not_given_leaves_the_file_its_say(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('partitions = 3\nhttp = ""\n', "utf-8")

    result = CliRunner().invoke(command, ["--config", str(path), "--max-age", "2d"])

    assert result.output == "3 2 days, 0:00:00 None\n"


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["--file", "a", "b"], ["--file", "a", "--file", "b"]),
        (["--file", "a", "b", "--host", "h"], ["--file", "a", "--file", "b", "--host", "h"]),
        (["--file", "a", "status", "x"], ["--file", "a", "status", "x"]),
        (["--file", "status", "b"], ["--file", "status", "--file", "b"]),
        (["--host", "a", "b"], ["--host", "a", "b"]),
        ([], []),
    ],
)
def test_words_after_a_repeatable_option_are_spread(words: list[str], result: list[str]) -> None:
    assert spread(words, {"--file"}, {"status"}) == result


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"y\n", None), (b"n\n", OperatorError), (b"\x04", OperatorError), (None, click.UsageError)],
    ids=["yes", "no", "end", "nobody"],
)
def test_only_a_person_who_agrees_has_something_destroyed(
    answer: bytes | None, error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave if answer else os.open(os.devnull, os.O_RDONLY)) as terminal:
        os.write(master, answer or b"")
        monkeypatch.setattr(sys, "stdin", terminal)
        with pytest.raises(error, match="nothing was changed") if error else nullcontext():
            ask("Do it?")
    os.close(master)
