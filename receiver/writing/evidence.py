"""What a machine's folders say about a partition before anything is written: values, for a decision to be made on."""

from dataclasses import dataclass
from enum import Enum

from receiver.writing.journal import Batch

__all__ = ["Bond", "Evidence"]


class Bond(Enum):
    """Whether an output folder and a state folder know each other as the two halves of a partition."""

    NEW = "new"
    """Neither has ever held anything of the partition."""
    WHOLE = "whole"
    """Each names the other."""
    OTHER_OUTPUT = "other output"
    """The journal belongs to files in another folder: another disk, or the right one is not mounted."""
    OTHER_STATE = "other state"
    """The files belong to a journal in another folder, or one that is gone."""
    NO_JOURNAL = "no journal"
    """Both are the right ones, and the journal is gone."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The folders by name, their bond, and the last batch of the journal; `damage` says what is wrong with it.

    `mark` is that of the state folder.
    """

    output: str
    state: str
    bond: Bond = Bond.NEW
    last: Batch | None = None
    damage: str = ""
    mark: str = ""
