"""Lines before and after those that were found, in their host and file."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from receiver.search.found import Found

Key = tuple[str, int, int]


class Around(Protocol):
    """Knows the lines around a line."""

    async def find_around(self, one: Found, most: int) -> tuple[list[Found], list[Found]]:
        """Return the lines before and after a line in its host and file."""


async def with_context(
    finder: Around, groups: AsyncIterator[list[Found]], most: int
) -> AsyncGenerator[list[Found], None]:
    """Yield lines with `most` lines of their host and file before and after, each line once."""
    shown: set[Key] = set()
    async for found in groups:
        for one in (line for run in found for line in run.split_up()):
            before, after = await finder.find_around(one, most)
            group = [
                *(line._replace(is_context=True) for line in before),
                one,
                *(line._replace(is_context=True) for line in after),
            ]
            group = [line for line in group if _key(line) not in shown]
            shown.update(map(_key, group))
            if group:
                is_apart = len(group) > len(before) + len(after)
                yield [group[0]._replace(begins=is_apart), *group[1:]]


def _key(line: Found) -> Key:
    return line.stream, line.sequence, line.pos
