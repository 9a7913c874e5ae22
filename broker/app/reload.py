"""What settings that were read again change in a running program: some at once, the others at its next start."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.app.configuration import ProgramSettings, name_of

__all__ = ["Reload", "differences"]

Settings = TypeVar("Settings", bound=ProgramSettings)


@dataclass(frozen=True, slots=True)
class Reload(Generic[Settings]):
    """The settings that count from now on, the names of those that changed, and of those that wait for a restart."""

    settings: Settings
    changed: tuple[str, ...]
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in a line."""
        done = f"changed: {', '.join(self.changed)}" if self.changed else "nothing to change"
        return f"{done}; needs a restart: {', '.join(self.waiting)}" if self.waiting else done


def differences(old: Settings, new: Settings, at_once: Collection[str]) -> Reload[Settings]:
    """Return what to do about settings that were read again, of which a running program can change those `at_once`."""
    differing = [f for f in type(old).model_fields if getattr(old, f) != getattr(new, f)]
    changed = [field for field in differing if field in at_once]
    settings = old.model_copy(update={field: getattr(new, field) for field in changed})
    waiting = [field for field in differing if field not in at_once]
    return Reload(settings, tuple(map(name_of, changed)), tuple(map(name_of, waiting)))
