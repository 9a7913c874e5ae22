"""The applications of a host at work: one thread writes and rotates, tick by tick.

Everything is drawn from the seed but how long a tick takes and what is received by then. Writes cut
lines anywhere: half a line may be there for seconds before the rest of it.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.journal import Journal
from tests.chaos.logfile import LogFile
from tests.chaos.rotations import Rotation
from tests.chaos.writers import Application

_TICK = 0.1  # seconds
_HALF = 0.03
_HALF_LASTS = (0.2, 8.0)  # seconds
_LINKED = 0.3
_AT_ONCE, _A_FEW = 0.5, 3
_PIECES = (1, 1, 1, 2, 3)


@dataclass(slots=True)
class _Pen:
    application: Application
    log: LogFile
    rotation: Rotation
    chance: random.Random
    absent: float
    rest: bytes = b""
    pause: float = 0.0

    def tick(self, seconds: float) -> None:
        if self.absent > 0:
            self.absent -= seconds
            return
        if not self.log.files:
            self._appear()
        if self.rest and not self._rest_is_due(seconds):
            return
        self._write(self.application.rhythm(seconds))
        if not self.rest:
            files = self.log.files
            self.rotation.tick(seconds)
            if self.log.files > files and self.chance.random() < _AT_ONCE:
                self._write(_A_FEW)  # an application that was just about to write

    def _appear(self) -> None:
        self.log.begin()
        path = self.log.path
        if self.chance.random() < _LINKED:
            # what a shipper's patterns show as well: another name for the file at the path
            with suppress(OSError):  # a full disk
                path.with_name(f"{path.stem}-latest{path.suffix}").symlink_to(path.name)

    def finish(self) -> None:
        """Finish the last line, and end the log with a line longer than any miscount of bytes."""
        if self.log.files:
            tag = self.application.path.encode()
            self.log.append(self.rest + b"%b: this is the last line of the whole log\n" % tag)
            self.log.close()

    def _rest_is_due(self, seconds: float) -> bool:
        self.pause -= seconds
        if self.pause <= 0:
            self.log.append(self.rest)
            self.rest = b""
        return self.pause <= 0

    def _write(self, lines: int) -> None:
        chance = self.chance
        text = self.application.text.take(lines)
        if not text:
            return
        if self.application.records:
            self.log.append(text)
            return
        count = chance.choice(_PIECES)
        cuts = sorted(chance.randrange(len(text)) for _ in range(count - 1))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]
        # a rotated file is to end with a line: what a shipper makes of one that does not is no loss
        if chance.random() < _HALF and not self.rotation.is_late:
            half = chance.randrange(len(pieces[-1]))
            pieces[-1], self.rest = pieces[-1][:half], pieces[-1][half:]
            self.pause = chance.uniform(*_HALF_LASTS)
        for piece in pieces:
            if piece:
                self.log.append(piece)


@dataclass(slots=True)
class Writing:
    """What a host writes into `folder`, and once more into `accounts`, which no fault hits.

    `received()` returns how many bytes of this host have been received so far, or are reported as
    lost, or fewer. The host's `journal`, if any, is written meanwhile.
    """

    folder: Path
    accounts: Path
    applications: Sequence[Application]
    seed: int
    received: Callable[[], int]
    journal: Journal | None
    _pens: list[_Pen] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        for number, application in enumerate(self.applications):
            account = self.accounts / f"{number}-{Path(application.path).name}"
            log = LogFile(self.folder / application.path, account)
            chance = random.Random(f"{application.path} {self.seed}")
            rotation = Rotation(log, chance, self._asks(log))
            self._pens.append(_Pen(application, log, rotation, chance, application.appears))

    @property
    def logs(self) -> list[LogFile]:
        return [pen.log for pen in self._pens]

    @property
    def records(self) -> list[LogFile]:
        """The logs of records."""
        return [pen.log for pen in self._pens if pen.application.records]

    def start(self) -> None:
        if self.journal:
            self.journal.start(self._asks(self.journal))
        self._thread = threading.Thread(target=self._run, name=f"writing {self.folder}")
        self._thread.start()

    def stop(self) -> None:
        """Stop at the end of a line in every log; raises RuntimeError if the applications died."""
        self._over.set()
        if self.journal:
            self.journal.stop()
        if self._thread:
            self._thread.join()
        if self._failure:
            raise RuntimeError(f"what writes {self.folder} died") from self._failure

    def _asks(self, log: LogFile | Journal) -> Callable[[int], bool]:
        def is_received(end: int) -> bool:
            # whatever has not been received yet may be of this log: its end at most, since it comes
            # in order
            journal = self.journal.written if self.journal else 0
            behind = journal + sum(each.written for each in self.logs) - self.received()
            return end <= log.written - behind

        return is_received

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._over.wait(max(0.0, due - time.monotonic())):
                for pen in self._pens:
                    pen.tick(_TICK)
                # what a disk held up is not made up for
                due = max(due + _TICK, time.monotonic() - 1)
            # a disk that takes nothing any more: it has what was written
            with suppress(OSError):
                for pen in self._pens:
                    pen.finish()
        except BaseException as error:
            self._failure = error
            raise
