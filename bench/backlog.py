"""Make a backlog to drain: unique lines of 200 bytes like those of a busy web server.

Ten thousand lines are made with care; after that only the digits that count up and the clock are
written again, column by column.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

from faker import Faker

from tests.support.lines import access_line

LINE_BYTES = 200
"""The length of every line with its newline."""

_ROWS = 10_000
_LOW_DIGITS = 4
_HIGH_DIGITS = 6
# <request number> <seconds>.<ms> …
_SECONDS_AT = _HIGH_DIGITS + _LOW_DIGITS + 1
_SECONDS_DIGITS = 10
_BEGAN = 1_790_000_000
_ROWS_A_SECOND = 5_000
_STRIDE = 7_919  # bytes from cut to cut


def write_backlog(path: Path, lines: int, seed: int = 1) -> None:
    """Write `lines` lines to `path` and sync them to disk."""
    _write(path, backlog(lines, seed))


def write_lines_of_length(path: Path, size: int, length: int, seed: int = 1) -> None:
    """Write about `size` bytes of lines of `length` bytes each, newline included, and sync them."""
    _write(path, lines_of_length(size // length, length, seed))


def _write(path: Path, parts: Iterator[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())


def backlog(lines: int, seed: int = 1) -> Iterator[bytes]:
    """Yield `lines` lines, some thousands at a time.

    Raises ValueError if so many lines cannot all differ.
    """
    if lines > 10 ** (_HIGH_DIGITS + _LOW_DIGITS):
        raise ValueError(f"at most {10 ** (_HIGH_DIGITS + _LOW_DIGITS)} lines")
    table = bytearray(_table(seed))
    for number in range(0, lines, _ROWS):
        _write_column(table, 0, f"{number // _ROWS:0{_HIGH_DIGITS}d}")
        second = _BEGAN + number // _ROWS_A_SECOND
        _write_column(table, _SECONDS_AT, f"{second:0{_SECONDS_DIGITS}d}")
        yield bytes(table[: min(_ROWS, lines - number) * LINE_BYTES])


def lines_of_length(lines: int, length: int, seed: int = 1) -> Iterator[bytes]:
    """Yield `lines` lines of `length` bytes, one at a time: a number and a cut out of a web log.

    Raises ValueError if the number does not fit.
    """
    rest = length - _HIGH_DIGITS - _LOW_DIGITS - 2
    if rest < 0:
        raise ValueError(f"a line of {length} bytes is too short for its number")
    text = _table(seed).replace(b"\n", b" ")
    text *= 1 + rest // len(text)
    for number in range(lines):
        at = number * _STRIDE % (len(text) - rest)
        yield b"%0*d %b\n" % (_HIGH_DIGITS + _LOW_DIGITS, number, text[at : at + rest])


def _write_column(table: bytearray, at: int, digits: str) -> None:
    for place, digit in enumerate(digits.encode(), at):
        table[place::LINE_BYTES] = bytes([digit]) * _ROWS


def _table(seed: int) -> bytes:
    chance = random.Random(seed)
    faker = Faker()
    faker.seed_instance(seed)
    texts = [access_line(faker, chance) for _ in range(_ROWS // 10)]
    rows = []
    for row in range(_ROWS):
        trace = f"{chance.getrandbits(64):016x}"
        text = f"{chance.choice(texts)} {chance.choice(texts)}"
        start = f"{0:0{_HIGH_DIGITS}d}{row:0{_LOW_DIGITS}d} {_BEGAN}.{row % 1000:03d} {trace} "
        rows.append(f"{start}{text}".encode("ascii", "replace")[: LINE_BYTES - 1] + b"\n")
    return b"".join(rows)
