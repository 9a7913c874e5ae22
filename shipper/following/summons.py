"""What calls the loop to the files, and what for. Each room sets what it noticed; only a look takes it back."""

import asyncio
from dataclasses import dataclass, field

__all__ = ["Summons"]


@dataclass(slots=True)
class Summons:
    """`wake` is set on any change, `look_due` when a look would find something, `is_unsettled` when one will before long.

    It will where a file that was rotated or deleted waits for its end.
    """

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    look_due: bool = True
    is_unsettled: bool = False

    def call_to_look(self) -> None:
        """Wake the loop, for a look."""
        self.look_due = True
        self.wake.set()
