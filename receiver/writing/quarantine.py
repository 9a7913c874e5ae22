"""Where messages go that cannot be written as lines: set aside whole, one file each, and never dropped in silence."""

import json
import os
from pathlib import Path

from broker.connection import Message
from receiver.reading.delivery import Delivery
from receiver.writing.files import make_folder
from receiver.writing.logbook import sync_folder

__all__ = ["set_aside"]


def set_aside(
    output: Path, partition: int, delivery: Delivery, message: Message, reason: str
) -> None:
    """Keep a message under `<output>/.quarantine`, on disk when this returns; raises OSError.

    The file begins with one line of JSON (subject, sequence, reason, headers); the payload follows as it came. Its
    name holds the sequence, so that a batch that is written again makes the same file and not a second one.
    """
    folder = output / ".quarantine"
    make_folder(folder)
    about = {
        "subject": message.subject,
        "sequence": delivery.sequence,
        "stored_at": delivery.stored_at,
        "reason": reason,
        "headers": message.headers or {},
        "bytes": len(message.data),
    }
    name = folder / f"p{partition}-{delivery.sequence}.msg"
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(about).encode() + b"\n")
        file.write(message.data)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
