"""The number of partitions where its entry is gone or damaged, from all that was made by it. Decides only."""

from collections.abc import Collection, Iterable

from broker.wire.streams import MAX_PARTITIONS
from broker.wire.subjects import Subject, partition_of

__all__ = ["number_by"]


def number_by(partitions: Iterable[int], offsets: int, hosts: Collection[Subject]) -> int | None:
    """Return the least number by which all this can have been made; None where there is nothing to tell.

    `partitions` are those that have a consumer, `offsets` is how many have a committed offset, `hosts` are the subjects of
    stored lines. Subjects that no number explains, as other clients choose them, count by their partition alone.
    """
    known = [*partitions, *(host.partition for host in hosts), offsets - 1, -1]
    least = min(max(known) + 1, MAX_PARTITIONS)
    if not least:
        return None
    fitting = (n for n in range(least, MAX_PARTITIONS + 1) if _fit(hosts, n))
    return next(fitting, least)


def _fit(hosts: Collection[Subject], number: int) -> bool:
    return all(partition_of(one.host, number) == one.partition for one in hosts)
