"""A receiver with everything real but Spark, as a program of its own: `output state partitions server…`.

Its tasks run in threads. It ends by SIGTERM, with 0, or as a receiver does when it is fenced or has to give up.
"""

import asyncio
import logging
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

from broker.client.connection import Connection
from receiver.consume import task
from receiver.consume.assignment import LARGEST_PULL, Destination, SessionLimits
from receiver.consume.claim import Claim
from receiver.driver.follower import Pace, PartitionFollower, Shared
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
    followers: list[PartitionFollower] = []
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop, followers)
    connection = Connection(servers, "receiver")
    destination = Destination(output, state, 0, servers, partitions=partitions)
    run = partial(task.run, destination=destination)
    threads = ThreadPoolExecutor(partitions)
    async with asyncio.TaskGroup() as group:
        for number in range(partitions):
            site = Site(output, state, number, partitions=partitions)
            follower = PartitionFollower(
                Shared(connection, run, threads, time.time_ns, Calendar(timedelta()), PACE),
                Claim(connection, number, "tests:1", "LOGS", site),
                Meter(lambda: 0).expect(number),
            )
            followers.append(follower)
            group.create_task(follower.run())
    threads.shutdown(wait=False, cancel_futures=True)
    await connection.close()


def stop(followers: list[PartitionFollower]) -> None:
    for follower in followers:
        follower.stop.set()


if __name__ == "__main__":
    folder, keep, count, *addresses = sys.argv[1:]
    asyncio.run(main(Path(folder), Path(keep), int(count), tuple(addresses)))
