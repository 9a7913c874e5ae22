"""Asks a person before anything is destroyed; where nobody can answer, the answer is no."""

import sys

import click

from broker.app.exits import OperatorError

__all__ = ["YES", "ask"]

YES = click.option("--yes", is_flag=True, help="Do it without asking.")
"""The option of every command that asks first."""


def ask(question: str) -> None:
    """Return when a person at the terminal agrees; what it is about must have been shown before.

    Raises `click.UsageError` where there is no terminal, `OperatorError` when the answer is no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"nothing was changed: this asks first ({question}), and there is no terminal to answer on; "
            "--yes does it without asking"
        )
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        raise OperatorError("nothing was changed; --yes does it without asking")
