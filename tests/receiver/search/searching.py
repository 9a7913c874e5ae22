"""Runs `logreceiver search` as a person does."""

import subprocess
from typing import Any

from tests.support import forks


def search(*options: Any, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Search, and require an exit code and a log without a traceback."""
    ended = forks.run("logreceiver", "search", *options)
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended
    return ended


def found(*options: Any) -> bytes:
    """Return the lines that a search finds; nothing is logged."""
    ended = search(*options)
    assert ended.stderr == ""
    return ended.stdout.encode("utf-8", "surrogateescape")
