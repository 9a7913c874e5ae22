"""Small file systems of their own, for tests that run as root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *options: str, kind: str = "tmpfs") -> Iterator[Path]:
    """Mount a file system on a folder; skips the test where that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", kind, "-o", ",".join(options) or "defaults", kind, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
