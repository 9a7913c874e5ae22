"""What `logshipper check` finds: would the agent reach its broker, and which files would it follow."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from broker.bucket import read
from broker.connection import BrokerAway, Connection, ConnectionLost, Rejected
from broker.subjects import Subject
from broker.topology import CONFIG_BUCKET, PARTITIONS_KEY, STREAM
from shipper.discovery import scan
from shipper.registry import Registry
from shipper.selection import Selection
from shipper.waiting import reason_of

__all__ = ["Finding", "check_broker", "check_files"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `ok` says whether the agent could work with it."""

    ok: bool
    text: str


async def check_broker(connection: Connection, host: str) -> list[Finding]:
    """Reach the broker, the number of partitions and the stream; publishes nothing."""
    try:
        await connection.once()
        entry = await read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
        if entry is None:
            return [Finding(False, "the number of partitions is not set; run `logbroker apply`")]
        subject = Subject.for_host(host, int(entry.value))
        newest = await Registry(connection, subject).newest()
    except BrokerAway as error:
        return [Finding(False, str(error))]
    except ConnectionLost as error:
        return [Finding(False, f"the broker at {connection.servers} did not answer: {error}")]
    except Rejected as error:
        return [Finding(False, f"broker at {connection.servers}: {reason_of(error)}")]
    finally:
        await connection.close()
    last = f"last message {newest.sequence}" if newest else "nothing there yet"
    return [Finding(True, f"broker at {connection.servers}: stream {STREAM}, {subject}, {last}")]


def check_files(selection: Selection) -> Iterator[Finding]:
    """Say of each file that would be followed whether it can be read."""
    found = scan(selection, ())
    for sighting in found.sightings:
        readable = os.access(sighting.path, os.R_OK)
        text = f"{sighting.size} bytes" if readable else "cannot be read; check its permissions"
        yield Finding(readable, f"{sighting.path}: {text}")
    for trouble in found.troubles:
        yield Finding(False, f"{trouble.path}: {trouble.text}")
