"""What a partition's own files need between batches: taken back with a batch that does not count, kept small, told of.

Whoever holds the partition's lock may call this, and nobody while a batch is being written.
"""

from collections.abc import Iterable
from pathlib import Path

from receiver.writing import gaps, spanbook
from receiver.writing.files import Output
from receiver.writing.gaps import GapBook
from receiver.writing.journal import PreImage
from receiver.writing.spanbook import SpanBook

__all__ = ["tend", "undo"]


def tend(state: Path, output: Path, partition: int) -> None:
    """Tell of gaps and drop history, when the last batch of the journal is committed.

    What the journal says of these files is void then. Raises OSError, `DamagedSpans`, `DamagedGaps`.
    """
    SpanBook(state / f"p{partition}.spans").compact()
    GapBook(state / f"p{partition}.gaps", partition).tell(output)


def undo(images: Iterable[PreImage], output: Output, state: Path, partition: int) -> None:
    """Make every file of a batch what its image says; can be broken off and repeated.

    Raises OSError, `Damaged`, `DamagedSpans`, `DamagedGaps`.
    """
    own = {f"p{partition}.spans": spanbook.cut, f"p{partition}.gaps": gaps.cut}
    lives = []
    for image in images:
        if cut := own.get(image.name):
            cut(state / image.name, image)
        else:
            lives.append(image)
    output.undo(lives)
