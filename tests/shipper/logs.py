"""Log files as their writers make them, and texts of a log that tests wait for."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support import forks
from tests.support.processes import Process, wait_until

ROOT = Path(__file__).parents[2]
Ship = Callable[..., Process]
run = partial(forks.run, "logshipper")


def lines(first: int, until: int, step: int = 1) -> bytes:
    return b"".join(b"%08d the quick brown fox\n" % number for number in range(first, until, step))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def rotate(log: Path) -> None:
    """Rename `a.log.1` to `a.log.2` and so on, and begin a new `a.log`."""
    siblings = sorted(log.parent.glob(f"{log.name}.*"), key=lambda path: int(path.suffix[1:]))
    for path in reversed(siblings):
        path.rename(path.with_suffix(f".{int(path.suffix[1:]) + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))
    log.touch()


def wait_for_log(process: Process, text: str) -> None:
    wait_until(f"logs {text!r}", lambda: text in process.read_log(), 40, [process])
