"""What a bucket remembers of a key: how an offset moved while faults came and went."""

import base64

from broker.client.answer import Rejected
from broker.client.bucket import Entry
from broker.client.connection import Connection

_NO_MESSAGE_FOUND = 10037


async def history(connection: Connection, bucket: str, key: str) -> list[Entry]:
    """Return the revisions of a key that the bucket still has, oldest first; raises `Rejected`, `ConnectionLost`."""
    found: list[Entry] = []
    while True:
        begin = found[-1].revision + 1 if found else 1
        body = {"seq": begin, "next_by_subj": f"$KV.{bucket}.{key}"}
        try:
            message = (await connection.api(f"STREAM.MSG.GET.KV_{bucket}", body))["message"]
        except Rejected as error:
            if error.error == _NO_MESSAGE_FOUND:
                return found
            raise
        value = base64.b64decode(message.get("data", ""))
        is_deletion = b"KV-Operation:" in base64.b64decode(message.get("hdrs", ""))
        found.append(Entry(value, int(message["seq"]), message["time"], is_deletion))
