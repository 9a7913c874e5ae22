"""Lines that match a regular expression of a person's, found by a process of their own: a hostile pattern costs that process.

The process is this module, run with the pattern: it reads blocks of lines, each behind its length, and answers each in the
same way with the lines of it that match.
"""

import asyncio
import os
import re
import signal
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO

from broker.app.exits import OperatorError

_LENGTH = struct.Struct(">I")
_LONGEST = 500  # characters of a pattern
_BUDGET = 2.0  # seconds of CPU for a block of lines
_NICENESS = 5

LineFilter = Callable[[bytes], Awaitable[bytes]]
"""Returns those of some lines that are wanted; raises `OperatorError`."""


def check_pattern(pattern: str) -> str:
    """Return a pattern; raises ValueError for what is no regular expression of Python, or too long a one."""
    if len(pattern) > _LONGEST or "\0" in pattern:
        raise ValueError(f"the expression is longer than {_LONGEST} characters, or has a zero byte")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return pattern


@asynccontextmanager
async def line_filter(pattern: str) -> AsyncIterator[LineFilter]:
    """Yield what finds the lines that match, until its end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, pattern), stdin=pipe, stdout=pipe
    )
    asked, answers = process.stdin, process.stdout
    assert asked and answers  # noqa: PT018

    async def matching(lines: bytes) -> bytes:
        try:
            asked.writelines((_LENGTH.pack(len(lines)), lines))
            await asked.drain()
            return await answers.readexactly(
                *_LENGTH.unpack(await answers.readexactly(_LENGTH.size))
            )
        except (asyncio.IncompleteReadError, ConnectionError):
            words = f"the expression takes over {_BUDGET:g} s for {len(lines):,} bytes of lines: give a simpler one"
            raise OperatorError(words) from None

    try:
        yield matching
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _serve(pattern: str, asked: BinaryIO, answers: BinaryIO) -> None:
    wanted = re.compile(pattern).search
    while len(head := asked.read(_LENGTH.size)) == _LENGTH.size:
        text = asked.read(*_LENGTH.unpack(head)).decode("utf-8", "surrogateescape")
        signal.setitimer(signal.ITIMER_VIRTUAL, _BUDGET)  # its signal ends the process
        found = [line for line in text.removesuffix("\n").split("\n") if wanted(line)]
        lines = "".join(f"{line}\n" for line in found).encode("utf-8", "surrogateescape")
        answers.write(_LENGTH.pack(len(lines)) + lines)
        answers.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    _serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
