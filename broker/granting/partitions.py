"""Which partitions a new receiver is given, from what an operator says. Decides; asks nobody."""

from collections.abc import Sequence

from broker.granting.book import InvalidEntry, Key
from broker.granting.identity import Kind

__all__ = ["partitions_of"]

_ALL = "all"


def partitions_of(key: Key, words: Sequence[str]) -> tuple[int, ...]:
    """Return the partitions of a receiver, none for all of them and for what is no receiver.

    `words` are numbers with commas, or `all`; without any the receiver's name is one. Raises `InvalidEntry`.
    """
    if key.kind is not Kind.RECEIVER:
        if words:
            raise InvalidEntry(f"--partition is for receivers; a {key.kind.value} has none")
        return ()
    said = [word.strip() for one in words or [key.name] for word in one.split(",")]
    if said == [_ALL]:
        return ()
    if not all(word.isascii() and word.isdigit() for word in said):
        raise InvalidEntry(
            f"say which partitions {key} gets: --partition 3, --partition 0,3,5 or --partition all"
            if not words
            else f"--partition {','.join(said)} is neither numbers nor all"
        )
    return tuple(sorted({int(word) for word in said}))
