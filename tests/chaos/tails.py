"""A second program that follows live files by name, as `tail -F` does, and what it has read.

It reads an open file to its end before it opens the next one, through any number of rotations. A
file that has become shorter is read again from its start, as tail does. So a reader sees each
truncation as repeated lines, although the files are well in the end.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.oracle import Verdict, judge
from tests.support.received import SEGMENT, is_packed, read_segment

_EVERY = 0.01  # seconds; what is cut off and written again within them is not noticed


class Tail:
    """Follows the live file of a host; `read` has every byte in the order in which it was read."""

    def __init__(self, output: Path, host: str) -> None:
        """Begin with the file that is live now, or with the next one."""
        self.read = bytearray()
        self._live = output / f"{host}.log"
        self._before = self._last = max(self._list_closed(), default=0)
        self._descriptor = -1
        self._position = 0

    def poll(self) -> None:
        """Read what is new; raises OSError."""
        while self._descriptor >= 0 or self._open():
            is_live = self._has_open(self._live)
            self._read_on()
            if is_live:
                return
            number, path = self._find_next(self._last)
            if is_packed(path) or self._has_open(path):
                self._last = number
            elif not path.exists():
                if path == self._live:
                    return
                continue  # it is compressed now
            # if it was not closed, another file has replaced it, and is all new to a reader
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._position = -1, 0

    def content(self) -> bytes:
        """Return what the files that it has followed have now, from the first one on.

        A receiver may write, rotate and compress them meanwhile. Raises OSError.
        """
        parts: list[bytes] = []
        last = self._before
        while True:
            number, path = self._find_next(last)
            part = _read_if_there(path)
            if path == self._live:
                if self._find_next(last)[1] == path:  # else it was rotated meanwhile
                    return b"".join(parts) + (part or b"")
            elif part is not None:  # else it is compressed now
                parts.append(part)
                last = number

    def judge(self) -> Verdict:
        """Compare what it has read with the files as they are; order is that of unique lines."""
        content, read = self.content(), bytes(self.read)
        counts = Counter(content.split(b"\n"))
        unique, seen = (
            b"\n".join(line for line in data.split(b"\n") if counts[line] < 2)
            for data in (content, read)
        )
        verdict = judge([unique], seen)
        return judge([content], read) if verdict.is_perfect else verdict

    def _open(self) -> bool:
        """Open the next file, and return whether there is one; read compressed ones."""
        while True:
            number, path = self._find_next(self._last)
            try:
                if is_packed(path):
                    self.read += read_segment(path)
                    self._last = number
                    continue
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if path == self._live:
                    return False
                continue  # it is compressed now
            if self._find_next(self._last) == (number, path) and self._has_open(path):
                return True
            self.close()  # it was rotated or compressed just now

    def _read_on(self) -> None:
        if os.fstat(self._descriptor).st_size < self._position:
            self._position = 0
        while part := os.pread(self._descriptor, 1 << 20, self._position):
            self.read += part
            self._position += len(part)

    def _has_open(self, path: Path) -> bool:
        try:
            return os.path.samestat(path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _find_next(self, last: int) -> tuple[int, Path]:
        """Return the file behind the closed one of a number, and its own number if it is closed."""
        closed = self._list_closed()
        number = min((one for one in closed if one > last), default=last)
        return number, closed[number] if number > last else self._live

    def _list_closed(self) -> dict[int, Path]:
        """Return the closed files by their numbers, the plain one of two forms."""
        found = sorted(self._live.parent.iterdir(), reverse=True)
        names = {path: name for path in found if (name := SEGMENT.fullmatch(path.name))}
        mine = (one for one in names.items() if f"{one[1]['host']}.log" == self._live.name)
        return {int(name["number"]): path for path, name in mine if name["number"]}


def _read_if_there(path: Path) -> bytes | None:
    try:
        return read_segment(path)
    except FileNotFoundError:
        return None


class Tails:
    """Follows the files of all hosts from a thread, but while their disk rests.

    `findings` says what readers saw wrongly before a rest.
    """

    def __init__(self, output: Path, hosts: Iterable[str]) -> None:
        """Follow nothing yet."""
        self.findings: list[str] = []
        self._output = output
        self._hosts = tuple(hosts)
        self._tails: dict[str, Tail] = {}
        self._resting = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tails", daemon=True)
        self._failure: BaseException | None = None

    def start(self) -> None:
        self.go_on()
        self._thread.start()

    def stop(self) -> Mapping[str, Verdict]:
        """Stop when no program writes any more; return what was read of each host's files.

        The verdict on a host compares with its files. Raises RuntimeError if the thread has died.
        """
        self._ended.set()
        self._thread.join()
        if self._failure:
            raise RuntimeError("what follows the files died") from self._failure
        self._poll()
        return {host: one.judge() for host, one in self._tails.items()}

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Judge what was read so far, and let go of all files; `go_on` follows them again."""
        self._poll()
        with self._lock:
            self._resting += 1
            tails, self._tails = self._tails, {}
        try:
            for one in tails.values():
                one.close()
            self.findings += [
                f"{host}: {one.judge()}"
                for host, one in tails.items()
                if not one.content().startswith(one.read)
            ]
            yield
        finally:
            with self._lock:
                self._resting -= 1

    def go_on(self) -> None:
        """Follow the files again after a rest, once receivers have recovered them."""
        with self._lock:
            if not self._tails and not self._resting:
                self._tails = {host: Tail(self._output, host) for host in self._hosts}

    def _poll(self) -> None:
        with self._lock:
            for one in self._tails.values():
                one.poll()

    def _run(self) -> None:
        try:
            while not self._ended.wait(_EVERY):
                self._poll()
        except BaseException as error:
            self._failure = error
            raise
