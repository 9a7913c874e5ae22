"""The bond of a partition's files and its journal: each half names the other by its folder's mark.

Files without their journal may end in lines that were never committed, and a journal without its files says nothing;
whatever separates the two (a disk that is not mounted, another --state-dir, a folder removed) is seen here.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from broker.halfmade import clear_away, half_made
from receiver.writing import journal
from receiver.writing.evidence import Bond, Evidence
from receiver.writing.folders import make_folder
from receiver.writing.journal import DamagedJournal
from receiver.writing.logbook import sync_folder
from receiver.writing.place import MARKED, is_mark, place_of

__all__ = ["Folders"]

_BONDS = ".bonds"


@dataclass(frozen=True, slots=True)
class Folders:
    """The two folders of a partition, as its driver sees them."""

    output: Path
    state: Path
    partition: int

    def look(self) -> Evidence:
        """Return what they say; raises OSError."""
        make_folder(self.output)
        make_folder(self.state)
        output, state = place_of(self.output), place_of(self.state)
        bond = self._bond(output.mark, state.mark)
        seen = Evidence(str(self.output), str(self.state), bond, mark=state.mark)
        for place in (output, state):
            if not is_mark(place.mark):
                return replace(seen, damage=f"{place.folder / MARKED} is damaged: it is no mark")
        try:
            last = journal.decode(self._journal.read_bytes())
        except FileNotFoundError:
            return replace(seen, bond=Bond.NO_JOURNAL) if seen.bond is Bond.WHOLE else seen
        except DamagedJournal as error:
            return replace(seen, damage=f"{self._journal} is damaged: {error}")
        if last is None and seen.bond is Bond.WHOLE:  # nobody of ours leaves it so
            return replace(seen, damage=f"{self._journal} is damaged: it is empty")
        return replace(seen, last=last)

    def _bond(self, output: str, state: str) -> Bond:
        named_output, named_state = _read(self._of_state), _read(self._of_output)
        if named_output and not is_mark(named_output) and named_state == state:
            named_output = (
                output  # it was damaged, and the other half tells that these two belong together
            )
        elif named_state and not is_mark(named_state) and named_output == output:
            named_state = state
        if named_output not in {"", output}:
            return Bond.OTHER_OUTPUT
        if named_state not in {"", state}:
            return Bond.OTHER_STATE
        return Bond.WHOLE if named_output and named_state else Bond.NEW

    def tie(self, epoch: int, first: int) -> None:
        """Bind the two to each other, and begin the journal where there is none; raises OSError.

        The journal comes first: where the bond is, a journal that is not there was taken away. What somebody died over
        in doing the same goes.
        """
        for path in (self._journal, self._of_state, self._of_output):
            clear_away(path)
        if not self._journal.exists():
            _put(self._journal, journal.sealed(journal.encode_start(epoch, first))[0])
        _put(self._of_state, f"{place_of(self.output).mark}\n".encode())
        make_folder(self._of_output.parent)
        _put(self._of_output, f"{place_of(self.state).mark}\n".encode())

    @property
    def _journal(self) -> Path:
        return self.state / f"p{self.partition}.journal"

    @property
    def _of_state(self) -> Path:
        return self.state / f"p{self.partition}.bond"

    @property
    def _of_output(self) -> Path:
        return self.output / _BONDS / f"p{self.partition}"


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _put(path: Path, data: bytes) -> None:
    """Make a file appear whole, and on disk; what says so already stays as it is."""
    with suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    with half_made(path) as file:
        os.fchmod(file.fileno(), 0o640)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        Path(file.name).replace(path)
    sync_folder(path.parent)
