import os
import signal
from collections.abc import Iterator

import click
import pytest

from broker.app.exits import ConfigurationError, Exit, FencedError, OperatorError, leading
from broker.app.program import run


@pytest.fixture(autouse=True)
def _keep_signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperatorError("mend it"), 1),
        (ConfigurationError("mend it"), 78),
        (FencedError("mend it"), 78),
        (click.UsageError("mend it"), 2),
        (leading(BaseExceptionGroup("", [KeyError(), FencedError("mend it")])), 78),
    ],
)
def test_an_error_that_a_person_must_mend_is_one_line_and_its_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command(name="example")
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run(command, [])

    said = capsys.readouterr().err
    assert ended.value.code == code
    assert said.startswith("example: mend it")
    assert said.count("\n") == 1


def test_a_defect_of_ours_is_not_hidden() -> None:
    @click.command(name="example")
    def command() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(command, [])


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
