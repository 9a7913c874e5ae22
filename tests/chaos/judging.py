"""The judgement of a world whose programs have ended: every line of every host, less what was destroyed and named."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

from broker.wire.subjects import partition_of
from receiver.storage.store import Store, path_of
from receiver.storage.tables import GAP_REPORTS
from tests.chaos.losses import Audit, Key, audit, lines_of
from tests.support.oracle import Verdict, judge
from tests.support.received import read_received

if TYPE_CHECKING:
    from tests.chaos.world import World

_REPEAT = re.compile(r"(?:repeat|doubt) of [0-9]+ bytes: host .*")


@dataclass(slots=True)
class Judgement:
    """A verdict for each host, what came of holding reports against losses, and all that speaks against the suite."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    audit: Audit = field(default_factory=Audit)
    findings: list[str] = field(default_factory=list)


def judged(world: "World") -> Judgement:
    """Judge every host; what cannot be read is a finding."""
    found = Judgement()
    received: dict[str, bytes] = {}
    for host in world.hosts:
        try:
            received[host.name] = read_received(world.output, host.name)
        except (OSError, ValueError, zstandard.ZstdError) as error:
            found.findings.append(f"{host.name}: what was received cannot be read: {error!r}")
    found.audit = _audited(world, received)
    for host in world.hosts:
        if host.name not in received:
            continue
        lost = found.audit.lost.get(host.name, set())
        receivable = [
            b"".join(line for line in lines_of(source) if line not in lost) if lost else source
            for source in host.sources()
        ]
        verdict = found.verdicts[host.name] = judge(receivable, received[host.name])
        if not verdict.is_perfect:
            found.findings.append(f"{host.name}: {verdict}")
    found.findings += [*found.audit.findings, *_losses_of_nothing(world)]
    if not world.destroyed and not world.adopted:
        found.findings += repeats(world.folder / "logs")
    return found


def _audited(world: "World", received: dict[str, bytes]) -> Audit:
    """Hold all reported gaps against all that was destroyed."""
    reached = {key: _reached(world, key) for key in {one.key for one in world.destroyed}}
    # with its store, what a receiver knew of a host's gaps was lost so many times
    adopted = Counter(world.adopted)
    forgotten = {h.name: adopted[partition_of(h.name, world.shape.partitions)] for h in world.hosts}
    return audit(world.destroyed, _told(world, "gap"), reached, received, forgotten)


def _losses_of_nothing(world: "World") -> list[str]:
    """Return a finding for each loss that is told of a host of which nothing was destroyed."""
    if world.destroyed or world.adopted:
        return []  # a block that was destroyed may have stood beside claims, which nobody lists
    return [f"a loss is told, and nothing was destroyed: {one}" for one in _told(world, "loss")]


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


def _told(world: "World", kind: str) -> list[dict[str, Any]]:
    reports = [path.read_text("utf-8") for path in sorted(world.output.glob(GAP_REPORTS))]
    told = [json.loads(line) for report in reports for line in report.splitlines()]
    return [one for one in told if one["kind"] == kind]


def _reached(world: "World", key: Key) -> int:
    host, file_id = key
    partition = partition_of(host, world.shape.partitions)
    with Store(path_of(world.receiver_state, partition)) as store:
        row = store.span(host, file_id)
    return row[0] if row else 0
