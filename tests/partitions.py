"""Lets the stream of a test take lines on more subjects than those of its partitions."""

from broker.provision.apply import carry_out, read_partitions
from broker.provision.plan import plan_partitions
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM


async def add_subjects(connection: Connection, *subjects: str) -> None:
    config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
    taken = list(dict.fromkeys((*config["subjects"], *subjects)))
    await connection.api(f"STREAM.UPDATE.{STREAM}", {**config, "subjects": taken})


async def change_partitions(connection: Connection, partitions: int) -> None:
    """Spread hosts over so many partitions, as `logbroker partitions` does."""
    made = plan_partitions(partitions, await read_partitions(connection))
    await carry_out(connection, made)
