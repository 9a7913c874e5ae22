"""A live file as it was left, and what other hands did to it since: told by name, or left to a person. Decides only."""

from dataclasses import dataclass

__all__ = ["Damaged", "Known", "difference", "remains"]


class Damaged(Exception):
    """A file is not what it was when it was committed; nobody but a person can know what to do."""


@dataclass(frozen=True, slots=True)
class Known:
    """A live file as it was left: its inode (0: not known here), its bytes, the number that its segment would get."""

    inode: int
    length: int
    number: int


def difference(live: str, known: Known, now: Known | None) -> str | None:
    """Return what somebody else did to a live file since it was left, in a sentence; None for nothing that shows.

    `now` is None for a file that is gone. Whether it has been rotated since is told by its number.
    """
    if not known.length or (now is not None and now.number != known.number):
        return None
    had = f"of which {known.length} bytes were written"
    if now is None:
        return f"{live}, {had}, is gone: it was moved or removed by somebody else; a new one begins"
    if known.inode and now.inode != known.inode:
        return f"{live}, {had}, was replaced by another file; what is there is closed and a new one begins"
    if now.length < known.length:
        return (
            f"{live}, {had}, was cut to {now.length} bytes by somebody else: lines are missing in it; "
            "what is there is closed and a new one begins"
        )
    return None


def remains(live: str, inode: int, length: int, now: Known | None) -> str | None:
    """Judge a file that is to be cut back to the `length` bytes that were committed of it, by its inode then (0: not known).

    None: they are all there. Else what to tell when nothing is left to be cut. Raises `Damaged` for what is there instead.
    """
    is_other = now is not None and inode not in (0, now.inode)
    if now is None or (is_other and not now.length):
        return (
            f"{live}, of which {length} bytes were committed, is gone: it was moved or removed by somebody else in the "
            f"middle of a batch; a new one begins. Where it was moved to, what stands behind byte {length} comes again"
        )
    if is_other:
        raise Damaged(
            f"{live} is not the file that was being written: somebody has put another in its place; move it away, and a "
            "new one begins"
        )
    if now.length < length:
        raise Damaged(
            f"{live} has {now.length} bytes, but {length} were committed: somebody cut it in the middle of a batch; put "
            "the rest back, or move it away, and a new one begins"
        )
    return None
