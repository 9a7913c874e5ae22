"""What a partition's own files need between batches: taken back with a batch that does not count, kept small, told of.

Whoever holds the partition's lock may call this, and nobody while a batch is being written.
"""

from contextlib import suppress
from pathlib import Path

from broker.app.folder import open_folder
from broker.app.whole import clear_away as clear_half_made
from receiver.writing import gaps, spanbook
from receiver.writing.files import Output
from receiver.writing.gaps import GapBook
from receiver.writing.journal import Batch
from receiver.writing.spanbook import SpanBook

__all__ = ["clear_away", "tend", "undo"]

_OWN = ("journal", "spans", "gaps", "lengths")


def clear_away(state: Path, partition: int) -> None:
    """Remove what a task died over while it wrote a file of the partition anew; what cannot be removed stays."""
    with suppress(OSError), open_folder(state) as folder:
        clear_half_made(folder, *(f"p{partition}.{suffix}" for suffix in _OWN))


def tend(state: Path, output: Path, partition: int, now: int) -> None:
    """Tell of gaps and drop history, when the last batch of the journal is committed; `now` in nanoseconds since the epoch.

    What the journal says of these files is void then. Raises OSError, `DamagedSpans`, `DamagedGaps`.
    """
    SpanBook(state / f"p{partition}.spans").compact(now)
    GapBook(state / f"p{partition}.gaps", partition).tell(output)


def undo(last: Batch, output: Output, state: Path, partition: int) -> None:
    """Make every file of the last batch what its image says; can be broken off and repeated.

    Raises OSError, `Damaged`, `DamagedSpans`, `DamagedGaps`.
    """
    lives = []
    for image in last.images:
        if image.name == f"p{partition}.spans":
            spanbook.cut(state / image.name, image, last.spans_before)
        elif image.name == f"p{partition}.gaps":
            gaps.cut(state / image.name, image)
        else:
            lives.append(image)
    output.undo(lives)
