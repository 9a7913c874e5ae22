"""Which of several errors a program ends with."""

import asyncio

import pytest

from broker.app.exits import Exit, FencedError, OperatorError, leading


def test_the_error_for_a_person_comes_before_a_defect_and_its_echoes() -> None:
    fenced = FencedError("another one has taken over")
    group = BaseExceptionGroup(
        "",
        [ValueError(), BaseExceptionGroup("", [asyncio.CancelledError(), fenced]), OperatorError()],
    )

    assert leading(group) is fenced


def test_without_an_error_for_a_person_the_first_defect_leads() -> None:
    defect = KeyError("x")

    assert leading(BaseExceptionGroup("", [ExceptionGroup("", [defect]), ValueError()])) is defect


@pytest.mark.parametrize("value", [0, 1, 2, 78])
def test_the_exit_codes_are_those_that_are_documented(value: int) -> None:
    assert Exit(value) == value
