"""What the files of a receiver must have at any time: the bytes of each, and the gaps to report."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from receiver.storage import rotation
from tests.receiver.partition import Partition
from tests.support.received import read_segment


@dataclass(frozen=True, slots=True)
class Sent:
    """A section of a message in the stream: its `lines` as they are written to files.

    A shipper's section has a span `[start, end)` in `file`. One that `is_bad` is for quarantine.
    """

    sequence: int
    partition: int
    host: str
    lines: bytes
    file: str = ""
    start: int = 0
    end: int = 0
    is_bad: bool = False


@dataclass(slots=True)
class Model:
    """The messages that were published, the offsets, and the content of each live file."""

    path: Path
    sent: dict[int, tuple[Sent, ...]] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 1})
    files: defaultdict[str, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    reached: dict[tuple[str, str], int] = field(default_factory=dict)
    gaps: Counter[tuple[str, str, int, int]] = field(default_factory=Counter)
    torn: dict[str, tuple[str, str]] = field(default_factory=dict)
    bad: set[int] = field(default_factory=set)

    @property
    def output(self) -> Path:
        """The output folder."""
        return self.path / "out"

    def take(self, sent: Sent, live: str) -> None:
        """Add a section to the files, as the receiver must."""
        if sent.is_bad:
            self.bad.add(sent.sequence)
            return
        lines = sent.lines
        if sent.file:
            key = sent.host, sent.file
            reached = self.reached.get(key, sent.start)
            if sent.start > reached:
                self.gaps[*key, reached, sent.start] += 1
            lines = lines[max(reached - sent.start, 0) :]
            self.reached[key] = max(reached, sent.end)
            if lines and self.torn.get(live) == key and sent.start <= reached:
                del self.torn[live]
        if lines and self.torn.pop(live, None):
            lines = b"\n" + lines
        if lines and not lines.endswith(b"\n"):
            self.torn[live] = sent.host, sent.file
        self.files[live] += lines

    def segments(self, live: str) -> dict[int, bytes]:
        """Return what is in the closed segments of a live file, by number."""
        place, name = (self.output / live).parent, Path(live).name
        if not place.exists():
            return {}
        closed = ((path, rotation.parse_segment(path.name)) for path in place.iterdir())
        numbered = {found[1]: path for path, found in closed if found and found[0] == name}
        return {number: read_segment(numbered[number]) for number in sorted(numbered)}

    def content(self, live: str) -> bytes:
        """Return everything that the files hold."""
        path = self.output / live
        last = path.read_bytes() if path.exists() else b""
        return b"".join(self.segments(live).values()) + last

    def removed(self, live: str, before: dict[int, bytes]) -> None:
        """Note which closed segments were removed since `before`; only committed ones may be."""
        left = self.segments(live)
        begins = list(accumulate((len(content) for content in before.values()), initial=0))
        for begin, (number, content) in reversed(list(zip(begins, before.items(), strict=False))):
            if number not in left:
                end = begin + len(content)
                assert end <= len(self.files[live]), "removed before it was committed"
                del self.files[live][begin:end]

    def read_gaps(self) -> Counter[tuple[str, str, int, int]]:
        """Return the gaps that were reported."""
        gaps = [gap for number in self.next for gap in Partition("", self.path, number).read_gaps()]
        return Counter((gap["host"], gap["file"], gap["start"], gap["end"]) for gap in gaps)

    def quarantined(self) -> set[int]:
        """Return the sequences of messages in quarantine."""
        return {about["sequence"] for about, _ in Partition("", self.path).set_aside()}

    def commit(self, partition: int, until: int, live: Callable[[Sent], str]) -> None:
        """Add the messages before `until`, which are committed."""
        for sequence in range(self.next[partition], until):
            for sent in self.sent.get(sequence, ()):
                if sent.partition == partition:
                    self.take(sent, live(sent))
        self.next[partition] = max(until, self.next[partition])

    def purge(self, first: int) -> None:
        """Forget the messages before `first`, which were purged."""
        for sequence in [number for number in self.sent if number < first]:
            del self.sent[sequence]
