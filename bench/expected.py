"""What must be in each host's files: digests, so that a backlog of some GB needs no memory."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.backlog import LINE_BYTES
from bench.fill import Sent
from bench.large import parts_of
from tests.support.oracle import Verdict, judge
from tests.support.received import read_received, segments_by_host


class Expected:
    """Takes note of messages on their way, and judges what has come of them."""

    def __init__(self) -> None:
        """Nothing has passed yet."""
        self.digests: dict[str, hashlib.blake2b] = defaultdict(hashlib.blake2b)
        self.size = 0

    def note(self, messages: Iterable[Sent]) -> Iterator[Sent]:
        """Yield messages again."""
        for message in messages:
            self.digests[message.host].update(message.lines)
            self.size += len(message.lines)
            yield message

    def judge(self, output: Path, again: Iterable[Sent]) -> Verdict:
        """Judge the received files.

        The first host whose files differ is compared with messages that are sent `again`.
        """
        lines = self.size // LINE_BYTES
        for host in self._wrong(output)[:1]:
            sent = b"".join(message.lines for message in again if message.host == host)
            return judge([sent], read_received(output, host))
        return Verdict(lines, lines)

    def _wrong(self, output: Path) -> list[str]:
        found = segments_by_host(output)
        return [
            host
            for host, digest in self.digests.items()
            if _digest(found.get(host, [])) != digest.digest()
        ]


def added(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on many hosts, with the counts of all."""
    every = list(verdicts)
    examples = tuple(one for verdict in every for one in verdict.examples)[:3]
    counts = {
        name: sum(getattr(verdict, name) for verdict in every)
        for name in ("written", "received", "missing", "repeated", "reordered", "torn", "foreign")
    }
    return Verdict(**counts, bytes_equal=all(one.bytes_equal for one in every), examples=examples)


def _digest(segments: Iterable[Path]) -> bytes:
    digest = hashlib.blake2b()
    for part in parts_of(segments):
        digest.update(part)
    return digest.digest()
