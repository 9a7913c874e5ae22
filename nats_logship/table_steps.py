"""The steps of a search: which files are read at a time, and when enough is found."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, takewhile

from nats_logship.table_files import TableFile
from nats_logship.table_query import Line, Order

_STEP_BYTES = 64 * 1024 * 1024  # of files that are read between two reports of progress


def sort_files(files: Iterable[TableFile], order: Order) -> list[TableFile]:
    """Return files by the first line of each in an order."""
    if order is Order.NEWEST:
        return sorted(files, key=lambda one: one.ends, reverse=True)
    return sorted(files, key=lambda one: one.begins)


def pack(files: Iterable[TableFile]) -> Iterator[list[TableFile]]:
    """Yield files in their order, about `_STEP_BYTES` of them at a time."""
    some, size = list[TableFile](), 0
    for one in files:
        if some and size + one.size > _STEP_BYTES:
            yield some
            some, size = [], 0
        some.append(one)
        size += one.size
    if some:
        yield some


def pack_in_order(files: Iterable[TableFile], order: Order) -> Iterator[list[TableFile]]:
    """Yield files so that all lines of one list come before those of the next."""
    some, size, reached = list[TableFile](), 0, 0
    for one in sort_files(files, order):
        first, last = one.begins, one.ends
        if order is Order.NEWEST:
            first, last = -last, -first
        if some and size + one.size > _STEP_BYTES and first > reached:
            yield some
            some, size = [], 0
        reached = max(reached, last) if some else last
        some.append(one)
        size += one.size
    if some:
        yield some


def split_certain(
    found: Sequence[Line], following: Sequence[TableFile] | None, order: Order
) -> tuple[Sequence[Line], Sequence[Line]]:
    """Return the lines that come before all lines of the following files, and the others."""
    certain = found
    if following and order is Order.NEWEST:
        certain = [*takewhile(lambda one: one.time // 1000 > following[0].ends, found)]
    elif following:
        certain = [*takewhile(lambda one: one.time // 1000 < following[0].begins, found)]
    return certain, found[len(certain) :]


def is_complete(
    found: Sequence[Line], limit: int, following: Sequence[TableFile], order: Order
) -> bool:
    """Whether no line of some files, or of those after them, belongs to the first lines found."""
    certain, _ = split_certain(found, following, order)
    return bool(found) and len(list(by_record(certain))) >= limit


def cut_records(lines: Iterable[Line], limit: int, order: Order) -> list[Line]:
    """Return the first lines in order: so many records, where a line alone is one."""
    found = sorted(lines, key=lambda one: one.order, reverse=order is Order.NEWEST)
    return [line for record in islice(by_record(found), limit) for line in record]


def by_record(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each record, of lines in order; a line alone is one."""
    for _, record in groupby(lines, lambda one: (one.stream, one.sequence, one.file, one.record)):
        yield list(record)
