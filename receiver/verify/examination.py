"""A task of a verification: the hosts of a unit, each by digest and, where that does not fit, line by line. Reads only.

The stream is read once for all hosts; what each of them should have is kept as a length and a digest. Only a host whose
newest received bytes are others is read once more, alone, and compared in windows.
"""

import hashlib
from dataclasses import dataclass, field

from receiver.replay.tasks import Unit, reach
from receiver.verify.closer import Closer, Names, look_closer
from receiver.verify.outcome import Examined, Order
from receiver.verify.received import closed, received

__all__ = ["examine"]


@dataclass(slots=True)
class _Expected:
    host: str
    length: int = 0
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))


def examine(unit: Unit, order: Order) -> Examined:
    """Compare the hosts of a unit, up to its `until`, which is the committed offset; raises OSError and others."""
    files: dict[str, _Expected] = {}
    refused = 0
    with Names(order, unit.partition) as names:
        for run in order.reader.unit(unit):
            refused += len(run.refused)
            for piece in run.pieces:
                live = names.live_name(piece)
                if (expected := files.get(live)) is None:
                    expected = files[live] = _Expected(piece.host)
                lines = names.lines(live, piece)
                expected.length += len(lines)
                expected.digest.update(lines)
            reach(order.progress, unit, run.until)
    segments = closed(order.output)
    reports = []
    for live, expected in sorted(files.items()):
        if not _fits(order, live, segments.get(live, {}), expected):
            closer = Closer(unit, order, expected.host, live)
            report = look_closer(closer, expected.length)
            if report.places or report.pruned:
                reports.append(report)
    size = sum(expected.length for expected in files.values())
    hosts = len({expected.host for expected in files.values()})
    return Examined(unit.partition, hosts, size, refused, tuple(reports))


def _fits(order: Order, live: str, names: dict[int, str], expected: _Expected) -> bool:
    """Whether the newest bytes are the expected ones, to the last."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with received(order.output, order.forms(live), expected.length, names) as found:
            start = found.length - expected.length
            if start < 0:
                return False
            for piece in found.pieces(start):
                digest.update(piece)
    except FileNotFoundError:  # rotated meanwhile: the closer look finds it
        return False
    return digest.digest() == expected.digest.digest()
