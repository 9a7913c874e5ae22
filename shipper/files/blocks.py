"""Cuts bytes read from a file into runs of whole lines. Looks at no line: finds the last newline of a run.

Any way of chunking gives the same bytes: what is cut is always a prefix of what is given, in order, without a hole.
"""

__all__ = ["count_lines", "cut"]

_SAMPLE, _MANY = 1024, 32


def cut(data: bytearray, start: int, end: int, block_size: int, max_line: int) -> list[bytes]:
    """Return the runs that `data[start:end]` begins with; what is left over is an unfinished line, to be read again.

    Each ends in a newline and has at most `block_size` bytes, or is one line of at most `max_line` bytes, or is a
    piece of exactly `max_line` bytes of a longer line, of which at least a byte is left.
    """
    runs = []
    with memoryview(data) as view:
        while (until := _end_of_run(data, start, end, block_size, max_line)) > start:
            runs.append(bytes(view[start:until]))
            start = until
    return runs


def count_lines(run: bytes) -> int:
    """Return the number of newlines.

    Taking them out searches with memchr(3), which skips over a line at a time: a quarter of the time of `bytes.count`
    for lines of 200 bytes, and several times as much for very short ones.
    """
    if run.count(b"\n", 0, _SAMPLE) > _MANY:
        return run.count(b"\n")
    return len(run) - len(run.replace(b"\n", b""))


def _end_of_run(data: bytearray, start: int, end: int, block_size: int, max_line: int) -> int:
    if until := data.rfind(b"\n", start, min(end, start + block_size)) + 1:
        return until
    if until := data.find(b"\n", start + block_size, min(end, start + max_line)) + 1:
        return until
    # a piece is never the last of its line: that one gets its newline, should it come without
    return start + max_line if end - start > max_line else start
