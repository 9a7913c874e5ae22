"""How much of each host is received, and in the end the verdict on every line and reported loss."""

import json
import re
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

from receiver.storage.anomalies import GAP_REPORTS
from tests.chaos.journal import Journal
from tests.support.oracle import Verdict, judge
from tests.support.received import is_packed, read_received, read_segment, segments_by_host

if TYPE_CHECKING:
    from tests.chaos.world import World

_LATELY = 0.5  # seconds
_RECORD = re.compile(rb"[^\n]+\n(?:(?![^\s\\])[^\n]*\n)*")  # as `--records indented`
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

    def lost(self, host: str) -> set[int]:
        """Return the numbers of the host's journal entries that are reported as lost."""
        gaps = (json.loads(line) for line in _report_lines(self.output))
        mine = (gap for gap in gaps if gap["host"] == host and gap["unit"] == "entries")
        return {number for gap in mine for number in range(gap["start"], gap["end"])}

    def excused(self, host: str, journal: Journal | None) -> int:
        """Return the bytes of lines that are reported as lost, and may be."""
        if not (journal and journal.vacuumed):
            return 0
        with suppress(OSError, ValueError):  # the report is just being written, or cannot be read
            return journal.size_of(self.lost(host) & journal.vacuumed)
        return 0


def _report_lines(output: Path) -> Iterator[str]:
    for path in sorted(output.glob(GAP_REPORTS)):
        yield from path.read_text("utf-8").splitlines()


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
    journals = {host.name: host.journal for host in world.hosts}
    while True:
        come = world.received.sizes()
        yield all(
            come.get(host, 0) + world.received.excused(host, journals[host]) >= size
            for host, size in sizes.items()
        )


def judged(world: "World") -> tuple[dict[str, Verdict], list[str]]:
    """Return a verdict for each host of a world whose programs have ended, and all findings."""
    verdicts: dict[str, Verdict] = {}
    may_miss = {host.name: host.journal.vacuumed for host in world.hosts if host.journal}
    findings = [*losses(world.output, may_miss), *repeats(world.folder / "logs")]
    for host in world.hosts:
        try:
            received = read_received(world.output, host.name)
        except (OSError, ValueError, zstandard.ZstdError) as error:
            findings.append(f"{host.name}: what was received cannot be read: {error!r}")
            continue
        sources = host.sources(world.received.lost(host.name))
        verdict = verdicts[host.name] = judge(sources, received)
        if not verdict.is_perfect:
            findings.append(f"{host.name}: {verdict}")
        findings += [
            f"{host.name}: {divided} records of {log.path.name} have other lines between"
            for log in host.writing.records
            if (divided := count_divided(log.content(), log.halts, received))
        ]
    return verdicts, findings


def count_divided(written: bytes, halts: Iterable[int], received: bytes) -> int:
    """Return how many records were received with other lines between, or not in order.

    A record of which a disk took only a part for a while (`halts`) may be divided.
    """
    place, divided = 0, 0
    halted = sorted(halts)
    for record in _RECORD.finditer(written):
        found = received.find(record[0], place)
        if found >= 0:
            place = found + len(record[0])
        else:
            divided += not any(record.start() < one < record.end() for one in halted)
    return divided


def losses(output: Path, may_miss: Mapping[str, Container[int]]) -> list[str]:
    """Return a finding for each gap and each loss that receivers report, and nothing was lost.

    `may_miss` has the numbers of the journal entries of each host that were deleted.
    """

    def is_excused(gap: Mapping[str, Any]) -> bool:
        mine = may_miss.get(gap["host"], ()) if gap.get("unit") == "entries" else ()
        return bool(mine) and all(one in mine for one in range(gap["start"], gap["end"]))

    lines = (line for line in _report_lines(output) if not is_excused(json.loads(line)))
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
