"""What `logshipper check` finds: would the agent reach its broker, and which files would it follow. Changes nothing."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from broker.app.exits import OperatorError
from broker.client.bucket import read
from broker.client.connection import BrokerAway, Connection, ConnectionLost, Rejected
from broker.client.rights import may_publish
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, STREAM, partitions_in
from broker.wire.subjects import Subject, host_filter, registry_consumer
from shipper.files.discovery import scan
from shipper.files.selection import Selection
from shipper.files.sighting import Scan, Sighting
from shipper.notice import NoticeKind
from shipper.publishing.registry import Registry
from shipper.publishing.waiting import reason_of
from shipper.telling.finding import Finding, bad, fine, left_out

__all__ = ["check_broker", "check_files", "seen_by"]


async def check_broker(
    connection: Connection, host: str, explain: Callable[[Rejected], str] = reason_of
) -> list[Finding]:
    """Reach the broker, the number of partitions and the stream, and ask for the rights; publishes nothing.

    `explain` says what a refusal means.
    """
    try:
        await connection.once()
        entry = await read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
        partitions = partitions_in(entry.value if entry else None)
        if partitions is None:
            return [bad("the number of partitions is not set, or no number; run `logbroker apply`")]
        subject = Subject.for_host(host, partitions)
        newest = await Registry(connection, subject).newest()
        rights = await _rights(connection, subject)
    except BrokerAway as error:
        return [bad(str(error))]
    except ConnectionLost as error:
        return [bad(f"the broker at {connection.servers} did not answer: {error}")]
    except Rejected as error:
        return [bad(f"broker at {connection.servers}: {explain(error)}")]
    except (OperatorError, ValueError) as error:
        return [bad(str(error))]
    finally:
        await connection.close()
    last = f"last message {newest.sequence}" if newest else "nothing there yet"
    reached = (
        f"broker at {connection.servers}: stream {STREAM}, {subject} of {partitions} partitions"
    )
    return [fine(f"{reached}, {last}"), *rights]


async def _rights(connection: Connection, subject: Subject) -> list[Finding]:
    reading = (
        f"CONSUMER.CREATE.{STREAM}.{registry_consumer(subject.host)}.{host_filter(subject.host)}"
    )
    needed = (str(subject), await connection.api_subject(reading))
    try:
        answer = json.loads((await connection.request("$SYS.REQ.USER.INFO", patience=2)).data)
        permissions = answer["data"].get("permissions")
    except (Rejected, ConnectionLost, ValueError, KeyError):
        return [fine("the server does not tell what this user may do; that shows at the start")]
    denied = [needs for needs in needed if not may_publish(permissions, needs)]
    if denied:
        return [
            bad(f"this user may not publish to {needs}; see its permissions") for needs in denied
        ]
    return [fine(f"this user may publish to {subject}")]


def seen_by(selection: Selection) -> Scan:
    """Look at the folders as the agent does."""
    return scan(selection, ())


def check_files(selection: Selection, shown: Scan, now: int) -> Iterator[Finding]:
    """Say of each file whether it would be followed, and why not; `now` is nanoseconds since the epoch."""
    paths = {sighting.path for sighting in shown.sightings}
    for sighting in shown.sightings:
        if sighting.wanted:
            yield _judge(sighting, selection, now)
    for sighting in scan(replace(selection, excluded=()), ()).sightings:
        if sighting.wanted and sighting.path not in paths:
            yield left_out(f"{sighting.path}: left out by --exclude")
    for trouble in shown.troubles:
        yield _trouble(trouble.kind, f"{trouble.path}: {trouble.text}")


def _judge(sighting: Sighting, selection: Selection, now: int) -> Finding:
    if not os.access(sighting.path, os.R_OK):
        return bad(f"{sighting.path}: cannot be read; check its permissions")
    if selection.is_too_old(sighting.modified, now):
        return left_out(
            f"{sighting.path}: not written for longer than --ignore-older, unless it was followed before"
        )
    return fine(f"{sighting.path}: {sighting.size} bytes")


def _trouble(kind: NoticeKind, text: str) -> Finding:
    return left_out(text) if kind is NoticeKind.REFUSED else bad(text)
