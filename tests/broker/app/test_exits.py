"""Which of several errors a program ends with."""

import asyncio

from broker.app.exits import FencedError, OperatorError, leading


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
