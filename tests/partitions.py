"""Gives a stream another number of partitions while it holds lines, which no command of logbroker does."""

from broker.client.bucket import read, write
from broker.client.connection import Connection
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, STREAM, subjects_of

__all__ = ["add_subjects", "change_partitions"]


async def add_subjects(connection: Connection, *subjects: str) -> None:
    """Let the stream take lines on these subjects, beside those that it takes already."""
    config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
    taken = list(dict.fromkeys((*config["subjects"], *subjects)))
    await connection.api(f"STREAM.UPDATE.{STREAM}", {**config, "subjects": taken})


async def change_partitions(connection: Connection, partitions: int) -> None:
    """Let the stream take the lines of so many partitions, and then tell everybody."""
    await add_subjects(connection, *subjects_of(partitions))
    entry = await read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
    revision = entry.revision if entry else 0
    await write(connection, CONFIG_BUCKET, PARTITIONS_KEY, b"%d" % partitions, revision)
