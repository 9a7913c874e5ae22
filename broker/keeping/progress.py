"""How far a long work has come: a bar on a terminal, and a line now and then in a log. Both on stderr."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from broker.app.sizes import format_size

__all__ = ["Tell", "progress"]

Tell = Callable[[int], None]
"""Told of so many bytes more."""

_LEAST = 1024 * 1024  # bytes; what is smaller is done before anybody has read of it
_EVERY = 10.0  # seconds
logger = logging.getLogger(__name__)


@contextmanager
def progress(label: str, length: int) -> Iterator[Tell]:
    """Yield what is told of each further piece of a work of about `length` bytes."""
    if length < _LEAST:
        yield lambda _: None
    elif sys.stderr.isatty():
        with click.progressbar(length=max(1, length), label=label, file=sys.stderr) as bar:
            yield bar.update
            bar.update(max(0, bar.length - bar.pos) if bar.length else 0)
    else:
        yield _Lines(label, length, time.monotonic).tell


class _Lines:
    def __init__(self, label: str, length: int, clock: Callable[[], float]) -> None:
        self._label, self._length, self._clock = label, length, clock
        self._done = 0
        self._said = clock()

    def tell(self, size: int) -> None:
        self._done += size
        if self._clock() - self._said >= _EVERY:
            self._said = self._clock()
            logger.info(
                "%s: %s of about %s",
                self._label,
                format_size(self._done),
                format_size(self._length),
            )
