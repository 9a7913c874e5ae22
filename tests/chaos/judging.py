"""The judgement of a world whose programs have ended: every line of every host, and what receivers tell of losses."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from receiver.storage.tables import GAP_REPORTS
from tests.support.oracle import Verdict, judge
from tests.support.received import read_received

if TYPE_CHECKING:
    from tests.chaos.world import World

_REPEAT = re.compile(r"(?:repeat|doubt) of [0-9]+ bytes: host .*")


@dataclass(slots=True)
class Judgement:
    """A verdict for each host, and all that speaks against the suite."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def judged(world: "World") -> Judgement:
    """Judge every host; what cannot be read is a finding."""
    found = Judgement()
    for host in world.hosts:
        try:
            received = read_received(world.output, host.name)
        except (OSError, ValueError, zstandard.ZstdError) as error:
            found.findings.append(f"{host.name}: what was received cannot be read: {error!r}")
            continue
        verdict = found.verdicts[host.name] = judge(host.sources(), received)
        if not verdict.is_perfect:
            found.findings.append(f"{host.name}: {verdict}")
    found.findings += losses(world.output, "gap")
    if not world.adopted:  # with its store, what a receiver knew of its hosts was lost
        found.findings += [*losses(world.output, "loss"), *repeats(world.folder / "logs")]
    return found


def losses(output: Path, kind: str) -> list[str]:
    """Return a finding for each gap or loss that receivers tell of: nothing was lost."""
    told = "".join(path.read_text("utf-8") for path in sorted(output.glob(GAP_REPORTS)))
    return [
        f"a {kind} is told, and nothing was lost: {line}"
        for line in told.splitlines()
        if json.loads(line)["kind"] == kind
    ]


def repeats(logs: Path) -> list[str]:
    """Return a finding for each receiver that has passed over lines because they came a second time.

    It would hide from all other findings that the stream holds them twice, which it never may, unless somebody has
    set back the stream, or what remembers how far it was received.
    """
    receivers = sorted(logs.glob("receiver-*.log"))
    told = {log: _REPEAT.findall(log.read_text("utf-8", "replace")) for log in receivers}
    return [
        f"{log.stem} was sent lines again {len(found)} times: {found[0]}"
        for log, found in told.items()
        if found
    ]
