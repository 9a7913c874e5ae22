"""The help of each option, and suggestions for mistyped names."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from broker.cli import group as logbroker
from receiver.cli import logreceiver
from receiver.offsets_cli import offsets
from shipper.cli import logshipper

PROGRAMS = (logbroker, logreceiver, logshipper)
CHOICES = (
    *(("log_level", "debug|info|warning|error"), ("log_format", "text|json")),
    *(("compression", "auto|zstd|none"), ("compress", "none|zstd|gzip")),
    *(("from_", "beginning|end"), ("speed", "instant|original"), ("discard", "old|new")),
)
DURATIONS = {
    *("grace", "ignore_older", "hold_deleted", "poll_every", "patience", "takeover_after"),
    *("rotate_every", "keep_age", "max_age", "within", "silent", "interval", "length"),
}
SIZES = {
    *("max_line", "round_size", "max_batch", "rotate_size", "keep_bytes", "max_bytes"),
    *("reserve", "memory"),
}


def options_of(command: click.Command) -> Iterator[click.Option]:
    yield from (one for one in command.params if isinstance(one, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if found := command.get_command(context, name):
                yield from options_of(found)


def test_the_help_shows_the_type_of_each_option() -> None:
    shown = {
        (str(one.name), one.metavar)
        for program in PROGRAMS
        for one in options_of(program)
        if not one.is_flag
    }

    assert set(CHOICES) <= shown
    assert {(name, "DURATION") for name in DURATIONS} <= shown
    assert {(name, "SIZE") for name in SIZES} <= shown
    assert {metavar for _, metavar in shown}.isdisjoint({"TIME", "BYTES"})


@pytest.mark.parametrize(
    ("program", "arguments", "meant"),
    [
        (logbroker, ["statsu"], "status"),
        (logbroker, ["credentials", "ad"], "add"),
        (logbroker, ["status", "--sever", "x"], "--server"),
        (logreceiver, ["offset"], "offsets"),
        (offsets, ["sho"], "show"),
        (logshipper, ["statsu"], "status"),
        (logshipper, ["--fiel", "x"], "--file"),
    ],
)
def test_a_similar_command_or_option_is_suggested(
    program: click.Command, arguments: list[str], meant: str
) -> None:
    done = CliRunner().invoke(program, arguments)

    assert done.exit_code == 2
    assert "id you mean" in done.output
    assert meant in done.output.partition("id you mean")[2]


def test_nothing_is_suggested_for_a_name_that_is_like_no_command() -> None:
    done = CliRunner().invoke(logbroker, ["zzz"])

    assert done.exit_code == 2
    assert "did you mean" not in done.output
