"""Commands of the programs, run to their end, and repeated while something prevents them."""

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.processes import installed

Answer = TypeVar("Answer")

_SECONDS = 60.0
_PAUSE = 0.1  # seconds


class CommandFailed(Exception):
    """A command ended with another code than 0; the message is its output."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(output)
        self.code = code


def run_command(program: str, *arguments: object, seconds: float = _SECONDS) -> str:
    """Return the output of a command; raises `CommandFailed`, `TimeoutExpired`."""
    command = [installed(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    if done.returncode:
        begin = " ".join(map(str, arguments[:2]))
        raise CommandFailed(done.returncode, f"{program} {begin}: {done.stdout}{done.stderr}")
    return done.stdout


def retried(action: Callable[[], Answer]) -> Answer:
    """Repeat an action for a minute while it is refused, then raise `TimeoutError`."""
    give_up = time.monotonic() + _SECONDS
    while True:
        try:
            return action()
        except (CommandFailed, OSError, subprocess.TimeoutExpired) as error:
            if time.monotonic() > give_up:
                raise TimeoutError(f"not within {_SECONDS:g} s: {error}") from error
        time.sleep(_PAUSE)
