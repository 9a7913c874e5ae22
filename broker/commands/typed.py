"""What a person types for an option, read by click: lengths of time and places in the stream."""

from datetime import UTC, datetime, timedelta

import click

from broker.app.durations import parse_duration
from broker.app.moment import Moment, read_moment

__all__ = ["length", "place"]


def length(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> timedelta | None:
    """Return a length of time, such as `12h`; None where none was given."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def place(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Moment | None:
    """Return a time or a sequence; None where none was given."""
    try:
        return None if text is None else read_moment(text, datetime.now(UTC))  # noqa: TID251 - the shell's clock
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
