"""Reads a stretch of an open file and checks in the same breath that it is still the file that was being read.

Blocks, so it runs in a thread; decides nothing.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Reading", "Request", "read"]


@dataclass(frozen=True, slots=True)
class Request:
    """Read at most `limit` bytes from `offset` on; `head` and `tail` are what must still stand at 0 and before it."""

    descriptor: int
    offset: int
    limit: int
    head: bytes
    tail: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: `data[start:]`, behind the tail; `intact` is False when what had been read before is gone."""

    intact: bool
    size: int
    modified: int
    data: bytes = b""
    start: int = 0
    error: str = ""


def read(requests: Sequence[Request]) -> list[Reading]:
    """Serve the requests in order, in one visit to the thread."""
    return [_read(request) for request in requests]


def _read(request: Request) -> Reading:
    start = len(request.tail)
    try:
        status = os.fstat(request.descriptor)
        size, modified = status.st_size, status.st_mtime_ns
        head = os.pread(request.descriptor, len(request.head), 0)
        if size < request.offset or head != request.head:
            return Reading(False, size, modified)
        # no more than is there: a buffer is made for all that is asked
        wanted = min(request.limit, size - request.offset)
        data = os.pread(request.descriptor, start + wanted, request.offset - start)
    except OSError as error:
        return Reading(True, request.offset, 0, error=error.strerror or str(error))
    return Reading(data.startswith(request.tail), size, modified, data, start)
