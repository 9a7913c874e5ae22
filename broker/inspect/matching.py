"""Find lines that match a user's regular expression, in a process of its own.

Only that process compiles the expression: one that takes too long cannot block anything else.
"""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from broker.inspect import matcher
from nats_logship.app.exits import OperatorError
from nats_logship.app.python import isolated_command
from nats_logship.app.text import format_count

_LONGEST = 500  # characters of a pattern

LineFilter = Callable[[bytes], Awaitable[list[tuple[int, int]]]]
"""Returns the half-open ranges of the lines that match; raises `OperatorError`."""


async def check_pattern(pattern: str) -> str:
    """Return a pattern, which may be empty; raises ValueError if `open_line_filter` refuses it."""
    try:
        if pattern:
            async with open_line_filter(pattern):
                pass
    except OperatorError as error:
        raise ValueError(str(error)) from None
    return pattern


@asynccontextmanager
async def open_line_filter(pattern: str) -> AsyncIterator[LineFilter]:
    """Yield a function that finds the lines that match, until the context ends.

    Raises `OperatorError` if the pattern is not a regular expression of Python, is too long, or
    takes too long to compile.
    """
    if len(pattern) > _LONGEST or "\0" in pattern:
        raise OperatorError(
            f"the expression is longer than {_LONGEST} characters, or has a zero byte"
        )
    pipe = asyncio.subprocess.PIPE
    command = isolated_command(matcher)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        try:
            trouble = await _ask(process, pattern.encode("utf-8", "surrogateescape"))
        except EOFError:
            raise OperatorError(_describe_cost("to compile")) from None
        if trouble:
            reason = trouble.decode("utf-8", "replace")
            raise OperatorError(f"{pattern!r} is not a regular expression: {reason}")
        yield partial(_match, process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _match(process: Process, lines: bytes) -> list[tuple[int, int]]:
    try:
        return list(matcher.RANGE.iter_unpack(await _ask(process, lines)))
    except EOFError:
        raise OperatorError(
            _describe_cost(f"for {format_count(len(lines), 'byte', form=',')} of lines")
        ) from None


async def _ask(process: Process, block: bytes) -> bytes:
    """Return the answer to a block; raises EOFError if the process has ended instead."""
    asked, answers = process.stdin, process.stdout
    assert asked and answers  # noqa: PT018
    asked.writelines((matcher.LENGTH.pack(len(block)), block))
    try:
        await asked.drain()
    except ConnectionError:
        raise EOFError from None
    head = await answers.readexactly(matcher.LENGTH.size)
    return await answers.readexactly(*matcher.LENGTH.unpack(head))


def _describe_cost(work: str) -> str:
    return f"the expression takes over {matcher.BUDGET:g} s {work}: give a simpler one"
