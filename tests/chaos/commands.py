"""Commands of ours as an operator gives them, from the harness's own place on the clients' network."""

import subprocess
import sys
import time
from pathlib import Path

_SECONDS = 60.0
_PAUSE = 0.5  # seconds


class CommandFailed(Exception):
    """A command ended with another code than 0; the message is what it said."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code


def run_command(program: str, *words: str | Path, seconds: float = _SECONDS) -> str:
    """Run a command of `logbroker` or `logreceiver` and return what it says; raises `CommandFailed`, `TimeoutExpired`."""
    path = Path(sys.executable).with_name(program)
    done = subprocess.run(
        [path, *words], capture_output=True, text=True, check=False, timeout=seconds
    )
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"
        raise CommandFailed(done.returncode, f"{program} {' '.join(map(str, words[:2]))}: {said}")
    return done.stdout


def insist(program: str, *words: str | Path) -> str:
    """Run a command until it is done, as other faults may be under way; raises `CommandFailed` after a minute."""
    give_up = time.monotonic() + _SECONDS
    while True:
        try:
            return run_command(program, *words)
        except CommandFailed:
            if time.monotonic() > give_up:
                raise
        time.sleep(_PAUSE)
