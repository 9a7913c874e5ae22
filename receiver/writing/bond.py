"""The bond of a partition's files and its journal: each half names the other by its folder's mark.

Files without their journal may end in lines that were never committed, and a journal without its files says nothing;
whatever separates the two (a disk that is not mounted, another --state-dir, a folder removed) is seen here.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.folder import open_folder
from broker.app.whole import clear_away, replacing
from receiver.writing import journal
from receiver.writing.evidence import Bond, Evidence
from receiver.writing.folders import make_folder, make_within, within
from receiver.writing.journal import DamagedJournal
from receiver.writing.opening import is_regular, read
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
            last = journal.decode(read(self._journal))
        except FileNotFoundError:
            return replace(seen, bond=Bond.NO_JOURNAL) if seen.bond is Bond.WHOLE else seen
        except DamagedJournal as error:
            return replace(seen, damage=f"{self._journal} is damaged: {error}")
        if last is None and seen.bond is Bond.WHOLE:  # nobody of ours leaves it so
            return replace(seen, damage=f"{self._journal} is damaged: it is empty")
        return replace(seen, last=last)

    def _bond(self, output: str, state: str) -> Bond:
        named_output, named_state = _read(self._of_state), ""
        with suppress(FileNotFoundError), within(self.output, self._of_output) as path:
            named_state = _read(path)
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
        for path in (self._journal, self._of_state):
            _clear_away(path)
        if not is_regular(self._journal):
            _put(self._journal, journal.sealed(journal.encode_start(epoch, first))[0])
        _put(self._of_state, f"{place_of(self.output).mark}\n".encode())
        make_within(self.output, _BONDS)
        with within(self.output, self._of_output) as path:
            _clear_away(path)
            _put(path, f"{place_of(self.state).mark}\n".encode())

    @property
    def _journal(self) -> Path:
        return self.state / f"p{self.partition}.journal"

    @property
    def _of_state(self) -> Path:
        return self.state / f"p{self.partition}.bond"

    @property
    def _of_output(self) -> str:
        return f"{_BONDS}/p{self.partition}"


def _read(path: Path) -> str:
    try:
        return read(path).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _clear_away(path: Path) -> None:
    with suppress(FileNotFoundError), open_folder(path.parent) as folder:
        clear_away(folder, path.name)


def _put(path: Path, data: bytes) -> None:
    """Make a file appear whole, and on disk; what says so already stays as it is."""
    with suppress(FileNotFoundError):
        if read(path) == data:
            return
    with open_folder(path.parent) as folder, replacing(folder, path.name) as half:
        half.file.write(data)
