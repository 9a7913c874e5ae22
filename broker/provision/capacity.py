"""How much each server of a cluster can hold, as a KV entry for each: a stream that all of them hold is limited by the smallest."""

from contextlib import suppress

from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.provision.apply import STREAM_NOT_FOUND
from broker.wire.streams import CONFIG_BUCKET

__all__ = ["smallest_capacity", "write_capacity"]

_KEY = "capacity"


async def smallest_capacity(connection: Connection, server: str, own: int) -> int:
    """Return the bytes that the stream may have on every server that has told, `own` being those of `server`.

    Raises `Rejected`, `ConnectionLost`.
    """
    prefix = f"$KV.{CONFIG_BUCKET}.{_KEY}."
    try:
        info = await connection.api(
            f"STREAM.INFO.KV_{CONFIG_BUCKET}", {"subjects_filter": f"{prefix}>"}
        )
    except Rejected as error:
        if error.error == STREAM_NOT_FOUND:
            return own  # the first of all
        raise
    if info["config"].get("mirror"):
        return own  # these are another site's
    others = {subject.removeprefix(prefix) for subject in info["state"].get("subjects") or ()}
    told = [await _capacity_of(connection, other) for other in sorted(others - {server})]
    return min([own, *filter(None, told)])


async def write_capacity(connection: Connection, server: str, own: int) -> None:
    """Tell the others how many bytes the stream may have on this server; raises `Conflict`, `ConnectionLost`."""
    key, value = f"{_KEY}.{server}", b"%d" % own
    entry = await bucket.read(connection, CONFIG_BUCKET, key)
    if entry is None or entry.value != value:
        revision = entry.revision if entry else 0
        # a bucket that is the copy of another site's takes no entries of ours, and needs none
        with suppress(Rejected):
            await bucket.write(connection, CONFIG_BUCKET, key, value, revision)


async def _capacity_of(connection: Connection, server: str) -> int | None:
    entry = await bucket.read(connection, CONFIG_BUCKET, f"{_KEY}.{server}")
    is_number = entry is not None and entry.value.isdigit() and len(entry.value) < 20
    return int(entry.value) if entry and is_number else None
