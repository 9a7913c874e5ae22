"""A terminal taken over as a whole and given back as it was: drawn on without flicker, its keys read one by one.

By hand rather than with a library: one table takes a dozen codes that every terminal of today knows (xterm's), and
hosts that run a broker are spared some megabytes.
"""

import logging
import os
import signal
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

__all__ = ["Screen"]

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # another page, no cursor, nothing on it
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_PAGE = "\x1b[H", "\x1b[K", "\x1b[J"
_USUAL = (80, 24)
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # shown at once, by those who know these


class Screen:
    """Standard output and input, both of them a terminal. What programs say on stderr would be drawn over: it is not said."""

    def __init__(self, keyboard: int, page: int) -> None:
        """Remember the descriptors; nothing is changed before the `with`."""
        self._keyboard = keyboard
        self._page = page
        self._before: list[Any] = []

    def __enter__(self) -> "Screen":
        """Take the terminal over."""
        self._before = termios.tcgetattr(self._keyboard)
        logging.disable(logging.CRITICAL)
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back, whatever happened."""
        with suppress(OSError, termios.error):  # it is gone
            self._leave()
        logging.disable(logging.NOTSET)

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and rows just now."""
        with suppress(OSError):  # gone meanwhile
            found = os.get_terminal_size(self._page)
            return found.columns, found.lines
        return _USUAL

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines, from the first row on; they must fit, and hold nothing but text."""
        page = "\r\n".join(f"{line}{_REST_OF_LINE}" for line in lines)
        self._write(f"{_BEGIN}{_HOME}{page}{_REST_OF_PAGE}{_END}")

    def key(self) -> str:
        """Return what was typed; empty when that is nothing."""
        try:
            return os.read(self._keyboard, 64).decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            return ""

    def suspend(self) -> None:
        """Stop as Ctrl-Z asks for, with the terminal given back meanwhile."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def _enter(self) -> None:
        tty.setcbreak(self._keyboard)
        self._write(_ENTER)

    def _leave(self) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode("utf-8", "replace"))
        while rest:
            rest = rest[os.write(self._page, rest) :]
