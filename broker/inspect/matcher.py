"""Program that finds lines which match a regular expression, within a budget of CPU time.

It is run by its path, so it imports nothing of ours. Each block on stdin and stdout follows its
length. The first block is the expression; the answer is the error in it, empty if there is none.
Each further block holds lines; the answer is the lines that match. For each answer it may use
`BUDGET` seconds of CPU time; then a signal ends it.
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
BUDGET = 2.0  # seconds of CPU time
_NICENESS = 5


def _serve(asked: BinaryIO, answers: BinaryIO) -> None:
    questions = _read(asked)
    try:
        wanted = re.compile(next(questions)).search
    except (re.error, RecursionError, OverflowError) as error:
        _answer(answers, str(error) or type(error).__name__)
        return
    _answer(answers, "")
    for text in questions:
        found = [line for line in text.removesuffix("\n").split("\n") if wanted(line)]
        _answer(answers, "".join(f"{line}\n" for line in found))


def _read(asked: BinaryIO) -> Iterator[str]:
    while len(head := asked.read(LENGTH.size)) == LENGTH.size:
        text = asked.read(*LENGTH.unpack(head)).decode("utf-8", "surrogateescape")
        signal.setitimer(signal.ITIMER_VIRTUAL, BUDGET)
        yield text


def _answer(answers: BinaryIO, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    answers.write(LENGTH.pack(len(data)) + data)
    answers.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    warnings.simplefilter("ignore")  # about syntax that a later Python may treat differently
    _serve(sys.stdin.buffer, sys.stdout.buffer)
