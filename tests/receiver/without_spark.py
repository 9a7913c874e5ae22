"""A receiver with everything real but Spark, as a program of its own: `output state partitions server…`.

Its tasks run in threads. It ends by SIGTERM, with 0, or as a receiver does when it is fenced or has to give up.
"""

import asyncio
import logging
import signal
import sys
import time
from pathlib import Path

from broker.client.connection import Connection
from broker.wire.streams import StreamLayout
from receiver.consume import task
from receiver.driver.driver import Followers
from receiver.meter import Meter
from receiver.settings import ReceiverSettings


async def main(output: Path, state: Path, partitions: int, servers: tuple[str, ...]) -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%T")
    for room in ("receiver", "broker"):
        logging.getLogger(room).setLevel("DEBUG")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ReceiverSettings(
        partition=("all",), server=servers, output=output, state_dir=state, rotate_size=0
    )
    connection, meter = Connection(servers, "receiver"), Meter(time.time_ns)
    followers = Followers(
        *(settings, connection, "tests:1", meter, ()),
        *(lambda destination, assignment: task.run(assignment, destination), partitions),
    )
    await followers.run(StreamLayout(partitions), partitions, stop)
    await connection.close()


if __name__ == "__main__":
    folder, keep, count, *addresses = sys.argv[1:]
    asyncio.run(main(Path(folder), Path(keep), int(count), tuple(addresses)))
