"""Errors that stop a partition until a person has decided, and one message about many of them."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from nats_logship.app.exits import ConfigurationError

_ADOPT = "adopt --partition {}"
_MOST_REASONS = 3  # partitions whose reasons are named, per command


class Damaged(ConfigurationError):
    """Store, files, offset and stream of a partition do not match; to go on could lose lines.

    `command` is the command of `logreceiver offsets` that mends this, with `{}` for the numbers of
    the partitions; empty if no command does. `effect` says what that command does.
    """

    def __init__(
        self,
        partition: int,
        reason: str,
        command: str = _ADOPT,
        effect: str = "takes the files as they are",
    ) -> None:
        """Name the partition and the reason."""
        self.partition, self.reason, self.command, self.effect = partition, reason, command, effect
        super().__init__(describe_damage([self]))

    def with_folders(self, output: Path, state: Path) -> "Damaged":
        """Return the same error with a command that names the folders of the files to adopt."""
        if self.command != _ADOPT:
            return self
        # the command is a format string: a brace of a path must be doubled
        folders = (
            shlex.quote(str(one)).replace("{", "{{").replace("}", "}}") for one in (output, state)
        )
        command = "{} --output {} --state-dir {}".format(_ADOPT, *folders)
        return type(self)(self.partition, self.reason, command, self.effect)


class Misplaced(Damaged):
    """The store or the files are not where they should be; perhaps a disk is not mounted."""


def describe_damage(errors: Iterable[Damaged]) -> str:
    """Return one line about all errors, with each command once for all partitions that need it."""
    by_command: dict[str, list[Damaged]] = {}
    for error in errors:
        by_command.setdefault(error.command, []).append(error)
    parts = []
    for command, alike in by_command.items():
        parts += [f"partition {one.partition}: {one.reason}" for one in alike[:_MOST_REASONS]]
        numbers = ",".join(str(one.partition) for one in alike)
        if alike[_MOST_REASONS:]:
            parts.append(f"the same goes for others of {numbers}")
        if command:
            parts.append(f"`logreceiver offsets {command.format(numbers)}` {alike[0].effect}")
    return "; ".join(parts)
