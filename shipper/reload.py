"""What settings that were read again change in a running agent: some at once, the others at its next start."""

from dataclasses import dataclass

from broker.configuration import name_of
from shipper.settings import ShipperSettings

__all__ = ["AT_ONCE", "Reload", "reload"]

AT_ONCE = frozenset(
    {
        "compression",
        "exclude",
        "exclude_lines",
        "file",
        "from_",
        "grace",
        "hold_deleted",
        "ignore_older",
        "include_lines",
        "log_format",
        "log_level",
        "memory",
        "round_size",
    }
)
"""The fields that a running agent can change."""


@dataclass(frozen=True, slots=True)
class Reload:
    """The settings that count from now on, the names of those that changed, and of those that wait for a restart."""

    settings: ShipperSettings
    changed: tuple[str, ...]
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in a line."""
        done = f"changed: {', '.join(self.changed)}" if self.changed else "nothing to change"
        return f"{done}; needs a restart: {', '.join(self.waiting)}" if self.waiting else done


def reload(old: ShipperSettings, new: ShipperSettings) -> Reload:
    """Return what to do about settings that were read again."""
    differing = [f for f in type(old).model_fields if getattr(old, f) != getattr(new, f)]
    at_once = AT_ONCE - {"file"} if "-" in (*old.file, *new.file) else AT_ONCE
    changed = [field for field in differing if field in at_once]
    settings = old.model_copy(update={field: getattr(new, field) for field in changed})
    waiting = [field for field in differing if field not in at_once]
    return Reload(settings, tuple(map(name_of, changed)), tuple(map(name_of, waiting)))
