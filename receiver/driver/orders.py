"""What settings mean for those who do the work: where tasks write and how long they stay, what becomes of closed segments.

Values only, of no type that a Spark worker would not have.
"""

from datetime import timedelta
from pathlib import Path

from broker.wire.streams import StreamLayout
from receiver.consume.assignment import LARGEST_PULL, Destination, Place, Stay
from receiver.driver.follower import Pace
from receiver.settings import ReceiverSettings
from receiver.spark.session import is_local
from receiver.storage.calendar import Calendar
from receiver.storage.layout import Layout
from receiver.storage.retention import Limits, Order
from receiver.zones import named_zone

__all__ = ["AT_ONCE", "calendar_of", "destination_of", "order_of", "pace_of", "slots_for"]

_MOST_WORKERS = 10  # of some 21 MiB each, beside 260 for the driver and its JVM
_IN_HAND = (
    64 * 1024 * 1024
)  # bytes that all tasks of a machine hold at once: a pull being written, another under way
_LEAST_PULL = 1024 * 1024  # bytes
_STAY, _SILENCE, _TELLING = 20.0, 5.0, 4.0  # seconds that a task stays

AT_ONCE = frozenset(
    {
        "compress",
        "keep",
        "keep_age",
        "keep_bytes",
        "linger",
        "log_format",
        "log_level",
        "max_batch",
        "rotate_size",
    }
)
"""The settings that a running receiver can change; its next stays go by them."""


def destination_of(
    settings: ReceiverSettings, places: tuple[Place, ...], layout: StreamLayout
) -> Destination:
    """Return where and how tasks write; of no type that a worker would not have."""
    return Destination(
        settings.output.absolute(),
        settings.state.absolute(),
        int(settings.rotate_size),
        settings.server,
        settings.rotate_every,
        settings.access.absolute(Path.cwd()),
        settings.time_zone,
        settings.path_template,
        settings.permissions,
        places,
        layout.partitions,
        layout.streams,
    )


def slots_for(master: str, partitions: int) -> int:
    """Return how many partitions may be received at once; on this machine each takes a worker, as far as memory allows."""
    return _MOST_WORKERS if is_local(master) else partitions


def pace_of(settings: ReceiverSettings, partitions: int) -> Pace:
    """Return how tasks are to stay, of so many partitions."""
    at_once = min(partitions, slots_for(settings.master, partitions))
    pull = max(min(LARGEST_PULL, _IN_HAND // (2 * at_once)), _LEAST_PULL)
    linger = settings.linger.total_seconds()
    stay = Stay(_TELLING) if settings.once else Stay(_STAY, _SILENCE, linger, _TELLING)
    return Pace(int(settings.max_batch), pull, stay, settings.once)


def order_of(settings: ReceiverSettings) -> Order:
    """Return what is wanted of closed segments."""
    age = settings.keep_age // timedelta(microseconds=1) * 1000
    limits = Limits(settings.keep, age, settings.keep_bytes)
    layout = Layout(settings.path_template)
    return Order(settings.output, settings.state, settings.compress, limits, layout)


def calendar_of(settings: ReceiverSettings) -> Calendar:
    """Return the calendar that silent files are closed by: where there is a file a day, at midnight at the latest."""
    every, day = settings.rotate_every, timedelta(days=1)
    if Layout(settings.path_template).has_date:
        every = min(every or day, day)
    return Calendar(every, named_zone(settings.time_zone))
