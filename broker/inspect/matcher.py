"""Program that finds the lines which match a regular expression, and pays what that costs.

It is run by its path, so it imports nothing of ours. Each block that it reads or writes follows
its length. It reads the expression and answers what is wrong with it: an empty block if nothing is.
Then it reads blocks of lines, and answers each with the lines of it that match. Each answer may
take `BUDGET` seconds of CPU time; a signal ends the process then.
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
    warnings.simplefilter("ignore")  # of expressions that a later Python may read otherwise
    _serve(sys.stdin.buffer, sys.stdout.buffer)
