"""How often a batch was begun and never came to an end: a message may kill whoever reads it, again and again.

A worker that dies says nothing, and only those count that die under one claim: a receiver that is killed or restarted
claims the partition anew, and its end tells nothing about a message. So each batch is noted before its messages are looked at, and the note is taken back when
it has ended, well or with an error that is reported. Of a batch that killed three workers only a part is tried, then a
part of that, until the one message is found that does it, which is set aside unread.
"""

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from receiver.storage.opening import descriptor_of

__all__ = ["DEADLY", "Attempt", "Attempts"]

DEADLY = 3
"""Workers that a batch, or a message, has to have killed before anything is done about it."""
_PART = 8  # by how much a batch is smaller than the one before that killed


@dataclass(frozen=True, slots=True)
class Attempt:
    """A batch that begins at the sequence `first` of the stream made at `stream`, with `count` messages before `until`.

    All of it is of the claim `epoch`.

    `deaths` workers have died over batches that began there. With `most` no batch before the sequence `region` has more
    messages than that; 0 is any number.
    """

    stream: str = ""
    epoch: int = 0
    first: int = 0
    until: int = 0
    count: int = 0
    deaths: int = 0
    most: int = 0
    region: int = 0

    def next(self, stream: str, epoch: int, first: int) -> "Attempt":
        """Return how the batch at `first` is to be begun, after this one, of which nobody has seen the end."""
        is_same_claim = (stream, epoch) == (self.stream, self.epoch)
        if is_same_claim and self.first < first < self.region:
            return replace(self, first=first, count=0, deaths=0)
        if not is_same_claim or first != self.first:
            return Attempt(stream, epoch, first)
        if self.most != 1 and self.count and self.deaths >= (1 if self.most else DEADLY):
            return replace(self, most=max(1, self.count // _PART), region=self.until, deaths=0)
        return self

    @property
    def is_hopeless(self) -> bool:
        """Whether the first message is what kills: it was alone in its batch."""
        return self.most == self.count == 1 and self.deaths >= DEADLY

    def begun(self, until: int, count: int) -> "Attempt":
        """Return what is noted when so many messages before `until` are about to be looked at."""
        return replace(self, until=until, count=count, deaths=self.deaths + 1)

    def ended(self, until: int) -> "Attempt":
        """Return what is noted when all before `until` has been written."""
        if self.is_hopeless or until >= self.region:
            return Attempt()
        return replace(self, first=until, count=0, deaths=0)


class Attempts:
    """The note of a partition, in a file of the state folder; used under the partition's lock.

    It need not outlive the machine: then nobody knows who or what has ended a batch.
    """

    def __init__(self, path: Path) -> None:
        """Open it and make it where it is missing; raises OSError."""
        self._file = descriptor_of(path, os.O_RDWR | os.O_CREAT)

    def read(self) -> Attempt:
        """Return the note, an empty one where there is none that can be read."""
        try:
            found = json.loads(os.pread(self._file, 4096, 0))
            if all(type(found.get(one.name)) is one.type for one in fields(Attempt)):
                return Attempt(**found)
        except (ValueError, AttributeError, TypeError):
            pass  # that's fine: the machine has died while it was written
        return Attempt()

    def write(self, attempt: Attempt) -> None:
        """Replace the note; raises OSError."""
        data = json.dumps(asdict(attempt)).encode().ljust(512)
        os.pwrite(self._file, data, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
