"""A receiver with everything real but Spark, as a program of its own: `output state partitions server…`.

Its tasks run in threads. It ends by SIGTERM, with 0, or as a receiver does when it is fenced or has to give up.
"""

import asyncio
import logging
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from broker.client.connection import Connection
from receiver.consume import task
from receiver.consume.assignment import LARGEST_PULL, Destination, SessionLimits
from receiver.consume.claim import Claim
from receiver.consume.wake import Wake
from receiver.driver.follower import Pace, PartitionFollower, RotationTimer
from receiver.driver.jobs import Jobs
from receiver.meter import Meter
from receiver.storage.rotation import Calendar
from receiver.storage.site import Site

PACE = Pace(64_000_000, LARGEST_PULL, SessionLimits(20.0, 5.0, 0.05, 4.0), once=False)


async def main(output: Path, state: Path, partitions: int, servers: tuple[str, ...]) -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%T")
    for room in ("receiver", "broker"):
        logging.getLogger(room).setLevel("DEBUG")
    for folder in (output, state):
        folder.mkdir(exist_ok=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connection = Connection(servers, "receiver")
    destination = Destination(output, state, 0, servers, partitions=partitions)
    jobs = Jobs(partial(task.run, destination=destination), partitions)
    async with asyncio.TaskGroup() as group:
        for number in range(partitions):
            meter = Meter(lambda: 0)
            meter.expect(number)
            follower = PartitionFollower(
                number,
                connection,
                jobs,
                Claim(
                    connection,
                    number,
                    "tests:1",
                    "LOGS",
                    Site(output, state, number, partitions=partitions),
                ),
                Wake(connection, number, "LOGS"),
                PACE,
                meter,
                lambda: datetime.fromtimestamp(time.time_ns() / 1e9, UTC),
                asyncio.Event(),
                RotationTimer(Calendar(timedelta()), time.time_ns),
            )
            group.create_task(follower.run(stop))
    jobs.close()
    await connection.close()


if __name__ == "__main__":
    folder, keep, count, *addresses = sys.argv[1:]
    asyncio.run(main(Path(folder), Path(keep), int(count), tuple(addresses)))
