"""How often a batch was begun and never came to an end: a message may kill whoever writes it, again and again.

A worker that dies says nothing, so each batch is noted before its messages are looked at, and the note is taken back when
the batch has ended, well or with an error that is reported. A batch over which three workers died begins anew with one
message; each batch that ends well may have twice as many as the one before, until as many as ever; one that kills its worker
begins anew with one. A message that kills three workers alone is set aside unread. Only those count that die under
one claim: a receiver that is killed or restarted claims the partition anew, and its end tells nothing about a message.
"""

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from receiver.storage.opening import descriptor_of

__all__ = ["DEADLY", "Attempts"]

DEADLY = 3
"""Workers that a batch, or a message alone, has to have killed before anything is done about it."""

_ALL = 2**40  # messages
_ENOUGH = 2**14  # messages of a batch that ended well, behind which there is no doubt left


@dataclass(frozen=True, slots=True)
class _Note:
    """A batch that begins at the sequence `first` of the stream made at `stream`, under the claim `epoch`.

    It may have at most `most` messages; `deaths` workers have died over it.
    """

    stream: str = ""
    epoch: int = 0
    first: int = 0
    deaths: int = 0
    most: int = _ALL

    @property
    def is_over(self) -> bool:
        """Whether the batch has killed as many workers as it may."""
        return self.deaths >= (DEADLY if self.most in {1, _ALL} else 1)


class Attempts:
    """The note of a partition, in a file of the state folder; used under the partition's lock.

    It need not outlive the machine, whose death says nothing about a message: so it is no row of the store, which would sync it.
    """

    def __init__(self, path: Path, stream: str, epoch: int) -> None:
        """Open the file and make it where it is missing; raises OSError."""
        self._file = descriptor_of(path, os.O_RDWR | os.O_CREAT)
        self._claim = (stream, epoch)
        self._note = self._read()

    def begin(self, first: int) -> int:
        """Note a batch from `first` on; return how many messages it may have, 0 to set its first aside. Raises OSError."""
        if (self._note.stream, self._note.epoch, self._note.first) != (*self._claim, first):
            self._note = _Note(*self._claim, first)
        if self._note.is_over:
            if self._note.most == 1:
                return 0
            self._note = replace(self._note, deaths=0, most=1)
        self._write(replace(self._note, deaths=self._note.deaths + 1))
        return self._note.most

    def take_back(self) -> None:
        """Take back what was noted of the batch: its error is reported. Raises OSError."""
        self._write(self._note)

    def end(self, until: int) -> None:
        """Note that the batch came to its end, before `until`. Raises OSError."""
        most = 2 * self._note.most
        self._note = _Note(*self._claim, until, most=most) if most <= _ENOUGH else _Note()
        self._write(self._note)

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
