"""How much of each host is received, and in the end the verdict on every line and reported loss."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from receiver.storage.anomalies import GAP_REPORTS
from tests.support.oracle import Verdict, judge
from tests.support.received import is_packed, read_received, read_segment, segments_by_host

if TYPE_CHECKING:
    from tests.chaos.world import World

_LATELY = 0.5  # seconds
_REPEAT = re.compile(r"(?:repeat|doubt) of [0-9]+ bytes: host .*")


class Received:
    """The output folder of a receiver, as it grows; closed segments are unpacked once."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._lately: dict[str, int] = {}
        self._looked = -_LATELY
        self._looking = threading.Lock()

    def sizes(self) -> dict[str, int]:
        """Return the unpacked bytes of each host, without a host whose file is being replaced."""
        try:
            segments = segments_by_host(self.output)
        except ValueError:
            return {}
        found: dict[str, int] = {}
        for host, paths in segments.items():
            with suppress(FileNotFoundError):
                found[host] = sum(map(_size, paths))
        return found

    def lately(self, host: str) -> int:
        """Return the bytes of a host half a second ago at most, for frequent callers."""
        with self._looking:
            if time.monotonic() - self._looked > _LATELY:
                self._looked = time.monotonic()
                with suppress(OSError):  # a fault has hold of the folder: as it was
                    self._lately = self.sizes()
            return self._lately.get(host, 0)


def _size(path: Path) -> int:
    status = path.stat()
    if not is_packed(path):
        return status.st_size
    return _unpacked(path, status.st_ino, status.st_size)


@cache
def _unpacked(path: Path, _inode: int, _size: int) -> int:
    return len(read_segment(path))


def awaited(world: "World") -> Iterator[bool]:
    """Say again and again whether all that hosts have written by now has been received."""
    sizes = {host.name: host.written() for host in world.hosts}
    while True:
        come = world.received.sizes()
        yield all(come.get(host, 0) >= size for host, size in sizes.items())


def judged(world: "World") -> tuple[dict[str, Verdict], list[str]]:
    """Return a verdict for each host of a world whose programs have ended, and all findings."""
    verdicts: dict[str, Verdict] = {}
    findings = [*losses(world.output), *repeats(world.folder / "logs")]
    for host in world.hosts:
        try:
            received = read_received(world.output, host.name)
        except (OSError, ValueError, zstandard.ZstdError) as error:
            findings.append(f"{host.name}: what was received cannot be read: {error!r}")
            continue
        verdict = verdicts[host.name] = judge(host.sources(), received)
        if not verdict.is_perfect:
            findings.append(f"{host.name}: {verdict}")
    return verdicts, findings


def losses(output: Path) -> list[str]:
    """Return a finding for each gap and each loss that receivers report: nothing was lost."""
    reports = sorted(output.glob(GAP_REPORTS))
    lines = (line for path in reports for line in path.read_text("utf-8").splitlines())
    return [f"reported, and nothing was lost: {line}" for line in lines]


def repeats(logs: Path) -> list[str]:
    """Return a finding for each receiver that skipped lines that it received again.

    It would hide that the stream holds lines twice, which it never may.
    """
    receivers = sorted(logs.glob("receiver-*.log"))
    told = {log: _REPEAT.findall(log.read_text("utf-8", "replace")) for log in receivers}
    return [
        f"{log.stem} was sent lines again {len(found)} times: {found[0]}"
        for log, found in told.items()
        if found
    ]
