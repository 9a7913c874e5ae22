"""How a program is told what to do, asks before it destroys, and ends."""

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


def test_what_a_person_must_mend_comes_before_the_defects_that_follow_from_it() -> None:
    errors = BaseExceptionGroup("", [KeyError(), FencedError("mend it")])

    assert isinstance(pick_error(errors), FencedError)


def test_a_defect_of_ours_is_not_hidden() -> None:
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
    assert capsys.readouterr().err == (
        "example: the current directory was removed; cd to one that exists, or give absolute paths\n"
    )


@pytest.mark.parametrize(("arguments", "code"), [([], Exit.DONE), (["--once"], Exit.FAILED)])
def test_a_signal_ends_it_in_order_and_a_second_one_does_not_break_into_that(
    arguments: list[str], code: Exit
) -> None:
    tidied: list[str] = []

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1)
    def command(rest: tuple[str, ...]) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            tidied.append("all")

    with pytest.raises(SystemExit) as ended:
        run(command, arguments)

    assert (ended.value.code, tidied) == (code, ["all"])


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
    assert repeat_option(words, {"--file"}, {"status"}) == result


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
            confirm("Do it?")
    os.close(master)
