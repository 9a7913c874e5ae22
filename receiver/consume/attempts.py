"""How often a batch was begun and never came to an end: a message may kill whoever looks at it, again and again.

A worker that dies says nothing, so each batch is noted before its messages are looked at, and the note is taken back when
the batch has ended, well or with an error that is reported. Of a batch over which three workers died the messages are
looked at one by one, each noted before. A message that one more dies over begins a batch, since those before it may be what
kills; when three in all have died over it, it is set aside unread. Only those count that die under one claim: a receiver that
is killed or restarted claims the partition anew, and its end tells nothing about a message.
"""

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from receiver.storage.opening import descriptor_of

__all__ = ["DEADLY", "Attempts"]

DEADLY = 3
"""Workers that a batch, or a message, has to have killed before anything is done about it."""


@dataclass(frozen=True, slots=True)
class _Note:
    """A batch that begins at the sequence `first` of the stream made at `stream`, under the claim `epoch`.

    `deaths` workers have died over it, and `alone` of those that looked at one message at a time over the message `sequence`.
    """

    stream: str = ""
    epoch: int = 0
    first: int = 0
    deaths: int = 0
    sequence: int = 0
    alone: int = 0


class Attempts:
    """The note of a partition, in a file of the state folder; used under the partition's lock.

    It need not outlive the machine, whose death says nothing about a message: so it is no row of the store, which would sync it.
    """

    def __init__(self, path: Path, stream: str, epoch: int) -> None:
        """Open the file and make it where it is missing; raises OSError."""
        self._file = descriptor_of(path, os.O_RDWR | os.O_CREAT)
        self._claim = (stream, epoch)
        self._before = self._read()

    def begin(self, first: int) -> bool:
        """Note a batch from `first` on; return whether its messages are to be looked at one by one. Raises OSError."""
        if (self._before.stream, self._before.epoch, self._before.first) != (*self._claim, first):
            self._before = _Note(*self._claim, first)
        if self._before.deaths >= DEADLY:
            return True
        self._write(replace(self._before, deaths=self._before.deaths + 1))
        return False

    def is_suspect(self, sequence: int) -> bool:
        """Say whether a worker has died over this message the last time that messages were looked at one by one."""
        return self._before.alone > 0 and self._before.sequence == sequence

    def look_at(self, sequence: int) -> bool:
        """Note that a message is about to be looked at; False, and nothing noted, when it is not to be. Raises OSError."""
        alone = self._before.alone if self._before.sequence == sequence else 0
        if alone >= DEADLY:
            return False
        self._write(replace(self._before, sequence=sequence, alone=alone + 1))
        return True

    def looked(self) -> None:
        """Note that no message can be blamed for what follows; raises OSError."""
        if self._before.deaths >= DEADLY:
            self._write(replace(self._before, sequence=0, alone=0))

    def take_back(self) -> None:
        """Take back what was noted of the batch: its error is reported. Raises OSError."""
        self._write(self._before)

    def end(self, until: int) -> None:
        """Note that the batch came to its end, before `until`; a message behind it is as suspect as before. Raises OSError."""
        is_ahead = self._before.alone > 0 and self._before.sequence >= until
        self._before = replace(self._before, first=until) if is_ahead else _Note()
        self._write(self._before)

    def _read(self) -> _Note:
        try:
            found = json.loads(os.pread(self._file, 4096, 0))
            if all(type(found.get(one.name)) is one.type for one in fields(_Note)):
                return _Note(**found)
        except (ValueError, AttributeError, TypeError):
            pass  # that's fine: the machine has died while it was written
        return _Note()

    def _write(self, note: _Note) -> None:
        os.pwrite(self._file, json.dumps(asdict(note)).encode().ljust(512), 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
