"""How a program reads its command line, asks before it destroys, and ends."""

import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

from nats_logship.app.command_line import confirm, repeat_option
from nats_logship.app.exits import Exit, FencedError, OperatorError, pick_error
from nats_logship.app.program import run


@pytest.fixture(autouse=True)
def _keep_signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_an_operator_error_comes_before_defects_of_the_same_group() -> None:
    errors = BaseExceptionGroup("", [KeyError(), FencedError("mend it")])

    assert isinstance(pick_error(errors), FencedError)


def test_a_defect_is_raised() -> None:
    @click.command(name="example")
    def command() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(command, [])


def test_a_current_directory_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command(name="example")
    def command() -> None:
        Path("app.log").absolute()

    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()

    with pytest.raises(SystemExit) as ended:
        run(command, [])

    assert ended.value.code == Exit.CONFIGURATION
    message = "the current directory was removed; cd to one that exists, or give absolute paths"
    assert capsys.readouterr().err == f"example: {message}\n"


@pytest.mark.parametrize(("arguments", "code"), [([], Exit.DONE), (["--once"], Exit.FAILED)])
def test_sigterm_ends_it_in_order_and_a_second_one_does_not_interrupt(
    arguments: list[str], code: Exit
) -> None:
    cleaned: list[str] = []

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1)
    def command(rest: tuple[str, ...]) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append("all")

    with pytest.raises(SystemExit) as ended:
        run(command, arguments)

    assert (ended.value.code, cleaned) == (code, ["all"])


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (["--file", "a", "b"], ["--file", "a", "--file", "b"]),
        (["--file", "a", "b", "--host", "h"], ["--file", "a", "--file", "b", "--host", "h"]),
        (["--file", "a", "status", "x"], ["--file", "a", "status", "x"]),
        (["--file", "status", "b"], ["--file", "status", "--file", "b"]),
        (["--host", "a", "b"], ["--host", "a", "b"]),
        ([], []),
    ],
)
def test_each_value_of_a_repeatable_option_gets_the_option(
    given: list[str], result: list[str]
) -> None:
    assert repeat_option(given, {"--file"}, {"status"}) == result


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"y\n", None), (b"n\n", OperatorError), (b"\x04", OperatorError), (None, click.UsageError)],
    ids=["yes", "no", "end", "nobody"],
)
def test_only_a_confirmation_by_a_person_lets_a_command_go_on(
    answer: bytes | None, error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave if answer else os.open(os.devnull, os.O_RDONLY)) as terminal:
        os.write(master, answer or b"")
        monkeypatch.setattr(sys, "stdin", terminal)
        with pytest.raises(error, match="nothing was changed") if error else nullcontext():
            confirm("Do it?")
    os.close(master)
