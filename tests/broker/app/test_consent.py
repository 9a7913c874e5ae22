import os
import pty
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from broker.app.command_line import ask
from broker.app.exits import OperatorError

Answer = Callable[[bytes], object]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    master, slave = pty.openpty()
    with os.fdopen(slave, encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield lambda text: os.write(master, text)
    os.close(master)


def test_who_agrees_goes_on(answers: Answer) -> None:
    answers(b"y\n")

    ask("Do it?")


@pytest.mark.parametrize("answer", [b"n\n", b"\x04"], ids=["no", "end"])
def test_any_other_answer_changes_nothing(answers: Answer, answer: bytes) -> None:
    answers(answer)

    with pytest.raises(OperatorError, match="nothing was changed"):
        ask("Do it?")


def test_where_nobody_can_answer_the_command_line_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)

        with pytest.raises(click.UsageError, match="--yes"):
            ask("Do it?")
