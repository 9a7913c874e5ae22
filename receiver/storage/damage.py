"""Errors that stop a partition until a person has decided, and one message about many of them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nats_logship.app.exits import ConfigurationError

_MOST_REASONS = 3  # partitions whose reasons are named, per command


class Remedy(NamedTuple):
    """A command of `logreceiver offsets` that mends damage, and what it does.

    The command has `{}` for the numbers of the partitions.
    """

    command: str
    effect: str


ADOPT = Remedy(
    "adopt --partition {}",
    "takes the files as they are: lines before the offset that they lack never come into them",
)
TO_EARLIEST = Remedy(
    "set --partition {} --to earliest",
    "begins with what the stream holds now, behind the lines that the files have",
)


class Damaged(ConfigurationError):
    """Store, files, offset and stream of a partition do not match; to go on could lose lines.

    `remedies` are the commands that mend this, of which a person chooses one; none if no command
    does.
    """

    def __init__(self, partition: int, reason: str, remedies: Sequence[Remedy] = (ADOPT,)) -> None:
        """Name the partition and the reason."""
        self.partition, self.reason, self.remedies = partition, reason, tuple(remedies)
        self._has_options = False
        super().__init__(describe_damage([self]))

    def with_options(self, folders: str, broker: str) -> "Damaged":
        """Return the same error with the options that its commands need, quoted for a shell.

        Those of `folders` name the files to adopt, those of `broker` the broker.
        """
        if self._has_options:
            return self
        remedies = []
        for remedy in self.remedies:
            options = f"{folders if remedy == ADOPT else ''} {broker}".strip()
            # the command is a format string: a brace of a path must be doubled
            doubled = options.replace("{", "{{").replace("}", "}}")
            remedies.append(remedy._replace(command=f"{remedy.command} {doubled}".rstrip()))
        found = type(self)(self.partition, self.reason, remedies)
        found._has_options = True
        return found


class Misplaced(Damaged):
    """The store or the files are not where they should be; perhaps a disk is not mounted."""


def describe_damage(errors: Iterable[Damaged]) -> str:
    """Return one line about all errors, with each command once for all partitions that need it."""
    by_remedies: dict[tuple[Remedy, ...], list[Damaged]] = {}
    for error in errors:
        by_remedies.setdefault(error.remedies, []).append(error)
    parts = []
    for remedies, alike in by_remedies.items():
        parts += [f"partition {one.partition}: {one.reason}" for one in alike[:_MOST_REASONS]]
        numbers = ",".join(str(one.partition) for one in alike)
        if alike[_MOST_REASONS:]:
            parts.append(f"the same goes for others of {numbers}")
        named = (
            f"`logreceiver offsets {command.format(numbers)}` {effect}"
            for command, effect in remedies
        )
        parts.append(", or ".join(named))
    return "; ".join(filter(None, parts))
