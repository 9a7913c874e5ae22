"""What the receiver's settings mean for claims, tasks and retention, as plain values.

A Spark worker can unpickle these values without pydantic.
"""

from datetime import timedelta

from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout
from receiver.consume.assignment import LARGEST_PULL, Destination, MarkedFolder, SessionLimits
from receiver.consume.claim import Claim
from receiver.driver.slot import TaskLimits
from receiver.settings import ReceiverSettings
from receiver.storage.layout import Layout
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.rotation import Calendar, load_zone
from receiver.storage.segments import Limits, SegmentPolicy

_IN_MEMORY = 64 * 1024 * 1024
"""Bytes that all partitions hold at once: a pull that is written, and the next one."""
_LEAST_PULL = 1024 * 1024  # bytes
_MOST_BATCHES = 16  # of the largest size, in all partitions together
_LONGEST, _SILENCE, _REPORT_WITHIN = 60.0, 10.0, 4.0  # seconds that a session lasts
_LINGER = 0.2  # seconds between appends of a few lines


def make_claim(
    settings: ReceiverSettings, layout: StreamLayout, number: int, connection: Connection
) -> Claim:
    """Return the claim of a partition, not yet made and without an owner."""
    folders = make_partition_folders(settings, layout, number)
    return Claim(connection, number, "", layout.stream_of(number), folders)


def make_partition_folders(
    settings: ReceiverSettings, layout: StreamLayout, number: int
) -> PartitionFolders:
    """Return where a partition is received to."""
    return PartitionFolders(
        settings.output.absolute(),
        settings.state.absolute(),
        number,
        settings.path_template,
        layout.partitions,
        settings.broker_options,
    )


def make_destination(
    settings: ReceiverSettings, folders: tuple[MarkedFolder, ...], layout: StreamLayout
) -> Destination:
    """Return where and how tasks write."""
    return Destination(
        output=settings.output.absolute(),
        state=settings.state.absolute(),
        rotate_size=int(settings.rotate_size),
        servers=settings.server,
        rotate_every=settings.rotate_every,
        access=settings.access,
        time_zone=settings.time_zone,
        path_template=settings.path_template,
        permissions=settings.permissions,
        folders=folders,
        partitions=layout.partitions,
        streams=layout.streams,
        broker=settings.broker_options,
    )


def make_limits(settings: ReceiverSettings, partitions: int) -> TaskLimits:
    """Return the limits of sessions at so many partitions."""
    partitions = max(partitions, 1)
    session = SessionLimits(
        longest=_LONGEST,
        silence=_SILENCE,
        linger=_LINGER,
        commit_every=settings.commit_every.total_seconds(),
        report_within=_REPORT_WITHIN,
    )
    return TaskLimits(
        limit=int(settings.max_batch) * _MOST_BATCHES // max(partitions, _MOST_BATCHES),
        pull=max(min(LARGEST_PULL, _IN_MEMORY // (2 * partitions)), _LEAST_PULL),
        session=SessionLimits(longest=_REPORT_WITHIN) if settings.once else session,
        once=settings.once,
        take_over=settings.take_over or not settings.once,
        standby=settings.takeover_after.total_seconds() if settings.standby else None,
    )


def make_segment_policy(settings: ReceiverSettings) -> SegmentPolicy:
    """Return what to do with closed segments."""
    age = settings.keep_age // timedelta(microseconds=1) * 1000
    limits = Limits(settings.keep, age, settings.keep_bytes)
    layout = Layout(settings.path_template)
    return SegmentPolicy(settings.output, settings.state, settings.compress, limits, layout)


def make_calendar(settings: ReceiverSettings) -> Calendar:
    """Return when the files of silent partitions are closed.

    Files whose path has a date are closed at midnight at the latest.
    """
    every, day = settings.rotate_every, timedelta(days=1)
    if Layout(settings.path_template).has_date:
        every = min(every or day, day)
    return Calendar(every, load_zone(settings.time_zone))
