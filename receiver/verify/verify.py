"""`logreceiver verify`: compares received files with the stream. Changes nothing.

The store of each partition says before which sequence all messages were received, and how many
bytes each file has. Hosts with lines in several partitions are read from all of these, and compared
with the files of the partition that has them now.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from nats_logship.app.command_line import parse_range_options
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.progress import Advance, progress
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.client.ranges import SequenceRange
from nats_logship.client.stream_state import get_stream_state
from receiver.replay.lines import find_ranges
from receiver.settings import StreamSettings
from receiver.storage.damage import Damaged
from receiver.storage.layout import Layout
from receiver.storage.partition_folders import require_template
from receiver.storage.rotation import load_zone
from receiver.storage.store import Store, make_store_path
from receiver.verify.comparison import PROGRAM, Lines, PartitionComparison
from receiver.verify.files import Files
from receiver.verify.report import VerifyReport


def verify(settings: StreamSettings) -> VerifyReport:
    """Compare all selected files; raises OperatorError and its kinds, click.UsageError."""
    output = settings.output.absolute()
    if not output.is_dir():
        raise ConfigurationError(f"there is no folder {output}; give the receiver's --output")
    require_template(settings.state.absolute(), settings.path_template)
    since, until = parse_range_options(settings.since, "", load_zone(settings.time_zone))
    find = partial(find_ranges, settings=settings, since=since, until=until)
    partitions, ranges = ask_broker(settings, PROGRAM, find, ELECTION)
    moved = ask_broker(settings, PROGRAM, lambda c: _find_moved_hosts(c, ranges), ELECTION)
    items = {number: ranges[number % len(ranges)] for number in partitions}
    try:
        with ExitStack() as stack:
            opened = {number: _open(settings, number, items[number], stack) for number in items}
            size = sum(max(0, one.until - one.item.first) for one in opened.values() if one)
            with progress("comparing", size) as advance:
                return _compare(opened, moved, advance)
    except Damaged as error:
        raise OperatorError(str(error)) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise OperatorError(
            f"{name}{error.strerror or error}; run this as the receiver's user, on the machine "
            "with its folders"
        ) from None


def _open(
    settings: StreamSettings, number: int, item: SequenceRange, stack: ExitStack
) -> PartitionComparison | None:
    """Open the store of a partition; None if nothing of the partition was received here."""
    try:
        store = stack.enter_context(Store(make_store_path(settings.state.absolute(), number)))
    except FileNotFoundError:
        return None
    if (batch := store.read_batch()) is None:
        return None
    store.check_pages()
    stream = ask_broker(settings, PROGRAM, lambda c: get_stream_state(c, item.stream), ELECTION)
    if batch.created not in {"", stream.created}:
        raise ConfigurationError(
            f"the files of partition {number} come from a stream created at {batch.created}, but "
            f"stream {item.stream} was created at {stream.created}: there is nothing to compare"
        )
    files = Files(store, settings.output.absolute(), Layout(settings.path_template))
    return PartitionComparison(
        settings=settings, partition=number, files=files, item=item, until=batch.until
    )


def _compare(
    partitions: Mapping[int, PartitionComparison | None],
    moved: Mapping[str, Sequence[int]],
    advance: Advance,
) -> VerifyReport:
    """Compare partitions; `moved` are the hosts with lines in several partitions, and these.

    `advance` gets the sequences that were read of each partition.
    """
    received = {number: one for number, one in partitions.items() if one}
    report = VerifyReport(unclaimed=[number for number, one in partitions.items() if not one])
    for one in received.values():
        expected = one.sum_lines(">", one.until, advance)
        at_home = {live: file for live, file in expected.items() if file.host not in moved}
        _add_to(report, one, at_home)
    for host, numbers in moved.items():
        joined = _join_partitions(host, numbers, received)
        expected = joined.sum_lines(host, joined.until) if joined else {}
        if joined and all(file.is_own for file in expected.values()):
            _add_to(report, joined, expected)
        else:
            report.moved.append(host)
    return report


def _add_to(
    report: VerifyReport, comparison: PartitionComparison, expected: Mapping[str, Lines]
) -> None:
    report.hosts += len({one.host for one in expected.values()})
    report.size += sum(one.length for one in expected.values())
    report.files += comparison.compare(expected)


def _join_partitions(
    host: str, numbers: Sequence[int], received: Mapping[int, PartitionComparison]
) -> PartitionComparison | None:
    """Return the comparison of a host's files with its lines in all of some partitions.

    Returns None unless all of these were received here, and one store alone has the files.
    """
    owners = [one for one in received.values() if one.files.store.list_files_of(host)]
    if len(owners) != 1 or not received.keys() >= set(numbers):
        return None
    others = (received[number] for number in numbers if number != owners[0].partition)
    return replace(owners[0], moved=tuple(one.range_of(host, one.until) for one in others))


async def _find_moved_hosts(
    connection: Connection, ranges: Iterable[SequenceRange]
) -> dict[str, list[int]]:
    """Return the hosts with lines in several partitions of the streams, with these partitions.

    If a partition has one message of a host, that is the claim by which the host has left.
    """
    partitions: dict[str, list[int]] = {}
    for stream in (one.stream for one in ranges):
        offset, total = 0, 1
        while offset < total:
            request = {"subjects_filter": "logs.>", "offset": offset}
            answer = await connection.api(f"STREAM.INFO.{stream}", request)
            counts = answer["state"].get("subjects") or {}
            for _, partition, host in (name.split(".", 2) for name, n in counts.items() if n > 1):
                partitions.setdefault(host, []).append(int(partition[1:]))
            offset, total = offset + max(1, len(counts)), answer.get("total", 0)
    return {host: numbers for host, numbers in sorted(partitions.items()) if len(numbers) > 1}
