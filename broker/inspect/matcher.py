"""Program that finds lines which match a regular expression, within a budget of CPU time.

It is run by its path, so it imports nothing of ours. Each block on stdin and stdout follows its
length. The first block is the expression; the answer is the error in it, empty if there is none.
Each further block holds lines; the answer is the half-open ranges of the lines that match, as
numbers of `RANGE`. For each answer it may use `BUDGET` seconds of CPU time; then a signal ends it.
"""

import os
import re
import signal
import struct
import sys
import warnings
from collections.abc import Iterator
from typing import BinaryIO

LENGTH = struct.Struct(">I")
RANGE = struct.Struct(">II")
BUDGET = 2.0  # seconds of CPU time
_NICENESS = 5


def _serve(asked: BinaryIO, answers: BinaryIO) -> None:
    questions = _read(asked)
    try:
        wanted = re.compile(next(questions).decode("utf-8", "surrogateescape")).search
    except (re.error, RecursionError, OverflowError) as error:
        _answer(answers, (str(error) or type(error).__name__).encode())
        return
    _answer(answers, b"")
    for lines in questions:
        found, start = [], 0
        for line in lines.removesuffix(b"\n").split(b"\n"):
            end = start + len(line) + 1
            if wanted(line.decode("utf-8", "surrogateescape")):
                found.append(RANGE.pack(start, end))
            start = end
        _answer(answers, b"".join(found))


def _read(asked: BinaryIO) -> Iterator[bytes]:
    while len(head := asked.read(LENGTH.size)) == LENGTH.size:
        data = asked.read(*LENGTH.unpack(head))
        signal.setitimer(signal.ITIMER_VIRTUAL, BUDGET)
        yield data


def _answer(answers: BinaryIO, data: bytes) -> None:
    answers.write(LENGTH.pack(len(data)) + data)
    answers.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    warnings.simplefilter("ignore")  # about syntax that a later Python may treat differently
    _serve(sys.stdin.buffer, sys.stdout.buffer)
