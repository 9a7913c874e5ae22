"""What the supervisors of all partitions share: slots, limits, clocks."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nats_logship.client.connection import Connection
from receiver.consume.assignment import LARGEST_PULL, SessionLimits
from receiver.driver.slot import Slot
from receiver.storage.rotation import Calendar


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How large batches are, how long sessions last, how a supervisor waits. Bytes and seconds.

    `limit` and `pull` are bytes of a batch and of a pull. With `once` a supervisor ends if nothing
    is left; without `take_over` it does not claim a partition of a running receiver. With a
    `standby` it takes over after so many seconds of silence. A task that has not reported for
    `patience` is reported. `pause` is the first pause after a failure; `check_every` is the time
    between checks of the stream, of the owner and of the clock.
    """

    limit: int
    pull: int = LARGEST_PULL
    session: SessionLimits = field(default_factory=SessionLimits)
    once: bool = False
    take_over: bool = True
    standby: float | None = None
    patience: float = 60.0
    pause: float = 0.5
    check_every: float = 10.0


@dataclass(slots=True)
class Shared:
    """What the supervisors of all partitions share; each next task follows its `limits`.

    Partition after partition goes to the next of the `slots`, which are at least one; only the
    first `usable` of them get sessions. `clock` gives nanoseconds since the epoch; `closed` is set
    when a task has closed segments.
    """

    connection: Connection
    slots: Sequence[Slot]
    clock: Callable[[], int]
    calendar: Calendar
    limits: TaskLimits
    usable: int = 1
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def use_slots(self, count: int) -> None:
        """Deal partitions to so many slots; running tasks end, and their sessions join the new."""
        count = max(1, min(count, len(self.slots)))
        if count != self.usable:
            self.usable = count
            for slot in self.slots:
                slot.end_task()

    def slot_of(self, index: int) -> Slot:
        """Return the slot to which the `index`-th partition is dealt now."""
        return self.slots[index % self.usable]
