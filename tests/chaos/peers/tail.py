"""How far lines have come: the highest number of each tag, whatever order lines are in and whatever is missing of them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Tail", "numbers_in"]

_LINE = re.compile(rb"^(?P<tag>\S+) (?P<number>[0-9]{8}) .*\n", re.MULTILINE)


def numbers_in(text: bytes) -> dict[bytes, int]:
    """Return the highest number of each tag in whole lines of `tests.chaos.writers`."""
    found: dict[bytes, int] = {}
    for line in _LINE.finditer(text):
        number = int(line["number"])
        found[line["tag"]] = max(found.get(line["tag"], -1), number)
    return found


@dataclass(slots=True)
class Tail:
    """Reads on in a file that grows, which need not be there yet."""

    path: Path
    numbers: dict[bytes, int] = field(default_factory=dict)
    _read: int = 0

    def read(self) -> dict[bytes, int]:
        """Return the highest number of each tag so far; what cannot be read just now is read the next time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return self.numbers
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for tag, number in numbers_in(whole).items():
            self.numbers[tag] = max(self.numbers.get(tag, -1), number)
        return self.numbers
