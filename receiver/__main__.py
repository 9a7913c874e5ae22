"""`logreceiver`, also as `python -m receiver`.

A receiver's JVM starts first of all: most imports then take no time of a start.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from nats_logship.app.exits import OperatorError
from nats_logship.app.signals import block_signals, die_of_interrupt
from receiver.spark.jvm import Jvm, run_jvm

_MASTER = "master"  # the setting; who names it may want a cluster
_OTHERS = {
    *("cheat", "status", "prepare", "replay", "search", "verify", "offsets"),
    *("--forget", "-h", "--help", "--version"),
}
"""Commands and options that receive nothing."""


def main() -> None:
    """Run logreceiver."""
    die_of_interrupt()
    with ExitStack() as stack:
        jvm = None
        if receives_locally(sys.argv[1:], os.environ):
            block_signals()
            jvm = _start_jvm(stack)
        from receiver import cli

        cli.main(jvm)


def receives_locally(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether these surely start a receiver whose Spark is on this machine, if they are valid."""
    if not _OTHERS.isdisjoint(arguments):
        return False
    texts = [*arguments, *environment]
    texts += map(_read, _find_files(arguments, environment))
    return not any(_MASTER in text.lower() for text in texts)


def _find_files(arguments: Sequence[str], environment: Mapping[str, str]) -> list[Path]:
    named = [after for before, after in pairwise(arguments) if before == "--config"]
    named += [one.partition("=")[2] for one in arguments if one.startswith("--config=")]
    named += filter(None, [environment.get("LOGRECEIVER_CONFIG")])
    credential = Path(environment.get("CREDENTIALS_DIRECTORY", ""), "logreceiver.toml")
    return [*map(Path, named), *([credential] if credential.is_file() else [])]


def _read(path: Path) -> str:
    """Return the text of a file of settings; a pipe, which can be read once, may name a master."""
    try:
        return path.read_text(errors="replace") if path.is_file() else _MASTER
    except OSError:
        return _MASTER


def _start_jvm(stack: ExitStack) -> Jvm | None:
    try:
        return stack.enter_context(run_jvm("local"))
    except OperatorError:
        return None  # the receiver reports it, after errors of its settings


if __name__ == "__main__":
    main()
