"""A stream that is short of space: retention purges all the time and hosts wait, and nothing is lost by it."""

import time
from threading import Lock

from broker.client.connection import Connection
from broker.wire.streams import STREAM
from tests.chaos.fault import Chance, alone, fault
from tests.chaos.world import World

_SHORT = (5.0, 15.0)  # seconds
_one = Lock()


@fault()
def short_of_space(world: World, chance: Chance) -> None:
    """Give the stream space for few messages for a while."""
    with alone(_one, "it is short of space already"):
        _hold(world, chance.randint(20, 200))
        time.sleep(chance.uniform(*_SHORT))
        _hold(world, -1)


def _hold(world: World, messages: int) -> None:
    """Let the stream hold so many messages, and refuse more."""

    async def update(connection: Connection) -> None:
        config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        limited = {**config, "max_msgs": messages, "discard": "new"}
        await connection.api(f"STREAM.UPDATE.{STREAM}", limited)

    world.ask(update)
