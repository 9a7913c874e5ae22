"""What a file that is being read is recognised by: its first bytes, and those before the offset. Memory; reads nothing."""

from dataclasses import replace

from broker.wire.message import Identity
from shipper.cursor import Cursor
from shipper.files.identity import HEAD_BYTES, TAIL_BYTES, identify

__all__ = ["Fingerprint"]


class Fingerprint:
    """The bytes of one file that are kept; `tail` is what stands before the offset."""

    def __init__(self, cursor: Cursor, head: bytes, tail: bytes) -> None:
        """Begin at the cursor; `head` is what the file begins with now, read before or not."""
        # of a file of which nothing was read only what it looked like is known
        self._head = head[: min(cursor.identity.head_length, cursor.offset)]
        self.tail = tail
        # what stands before the offset was not unpacked where the headers told that it is the end
        skipped = len(tail) < cursor.identity.tail_length
        self._known = cursor.identity if skipped else None
        # a file that nothing was read of yet must be told apart from what replaces it, too
        self._first = head

    @property
    def beginning(self) -> bytes:
        """The first bytes that were ever seen in the file, read before or not."""
        return max(self._head, self._first, key=len)

    def identity(self, inode: int) -> Identity:
        """Return what the file is recognised by at the offset."""
        if self._known is not None:
            return replace(self._known, inode=inode)
        return identify(inode, self._head, self.tail)

    def saw(self, head: bytes) -> None:
        """Take note of what the file begins with, of which nothing need have been read."""
        self._first = max(self._first, head, key=len)

    def skipped(self, length: int) -> None:
        """Take note that the file is read from `length` bytes on, all of them NULs; nothing was read yet."""
        self._head, self.tail = self._first[:length], bytes(min(length, TAIL_BYTES))

    def took(self, run: bytes) -> None:
        """Take note that these bytes were read, and move behind them."""
        self._known = None
        if len(self._head) < HEAD_BYTES:
            self._head += run[: HEAD_BYTES - len(self._head)]
            self._first = self.beginning  # the same bytes need not be kept twice
        whole = len(run) >= TAIL_BYTES
        self.tail = run[-TAIL_BYTES:] if whole else (self.tail + run)[-TAIL_BYTES:]
