"""How large a round may be, so that an agent keeps within the memory that it is given. Decides; measures nothing."""

__all__ = ["LEAST_MEMORY", "round_bytes"]

LEAST_MEMORY = 24 * 1024 * 1024
"""Bytes with which the longest lines still leave room for a round."""

_READ = 2 * 1024 * 1024
_ROUNDS = 5


def round_bytes(memory: int, max_line: int, asked: int) -> int:
    """Return the most bytes of lines in a round: what is asked for, or less where `memory` bytes do not suffice.

    A round is held while it is in flight, the next one as read and as compressed, one more as read ahead, and a fifth of
    all is left to the heap's holes. Beside them stand the buffer that is read into, what a reading goes beyond its round, and
    the copies of the message on its way to the socket.
    """
    beside = 5 * max(_READ, max_line)
    return min(asked, (memory - beside) // _ROUNDS)
