"""Control over `shim.c`, which sits between a program and libc: one page of memory for each program and all that it starts."""

import mmap
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")
_LAYOUT = struct.Struct("<qIiiIIII")  # what stands before the path in `struct control`
_CLOCK = struct.Struct("<q")
_CALLS = struct.Struct("<I")
_HITS = struct.Struct("<I")
_CALLS_AT, _HITS_AT = 8, 28
_PATH_MAX = 4096


class Calls(IntFlag):
    """Kinds of calls that can be hit: syncs, writes, opening to write, changes of names, changes of lengths."""

    SYNC = 1
    WRITE = 2
    OPEN = 4
    NAMES = 8
    LENGTH = 16
    ALL = 31


class Control:
    """What one program and its children are refused; all of it holds at once, also for those that run already."""

    def __init__(self, path: Path) -> None:
        """Make the page, in a file of its own; nothing is refused."""
        self.path = path
        size = _LAYOUT.size + _PATH_MAX
        size += -size % 8  # as the compiler rounds it up
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), size)

    def refuse(
        self,
        calls: Calls,
        under: Path,
        *,
        error: int = 0,
        times: int = -1,
        every: int = 1,
        delay: float = 0.0,
    ) -> None:
        """Have calls on what is in the folder `under` fail with `error`, an errno.

        Without one, writes write half, and syncs take `delay` seconds longer. It hits `times` calls (less than 0: all of them
        until `rest`), and of those that it could hit, each `every`th.
        """
        self.rest()
        microseconds = round(delay * 1_000_000)
        clock = _CLOCK.unpack_from(self._page)[0]
        name = str(under).encode()
        self._page[_LAYOUT.size : _LAYOUT.size + len(name) + 1] = name + b"\0"
        _LAYOUT.pack_into(self._page, 0, clock, 0, error, times, every, 0, 0, microseconds)
        _CALLS.pack_into(self._page, _CALLS_AT, calls)

    def rest(self) -> None:
        """Refuse nothing any more; the clock stays as it is."""
        _CALLS.pack_into(self._page, _CALLS_AT, 0)

    def step(self, seconds: float) -> None:
        """Have the clock show the true time and so much more, or less."""
        _CLOCK.pack_into(self._page, 0, round(seconds * 1_000_000_000))

    @property
    def hits(self) -> int:
        """How many calls were hit since `refuse`."""
        return int(_HITS.unpack_from(self._page, _HITS_AT)[0])


class Shim:
    """The library, compiled into a folder of this run, with the pages of all programs."""

    def __init__(self, folder: Path) -> None:
        """Compile it; raises `CalledProcessError` where the compiler refuses."""
        self._folder = folder
        self._library = folder / "shim.so"
        folder.mkdir()
        compiler = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        words = [*compiler, "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(words, check=True)
        self.controls: dict[str, Control] = {}

    def environment(self, name: str) -> Mapping[str, str]:
        """Return what a program is to be started with, so that it is controlled under this name."""
        control = self.controls.setdefault(name, Control(self._folder / f"{name}.control"))
        return {"LD_PRELOAD": str(self._library), "LOGSHIP_CHAOS_CONTROL": str(control.path)}


def have_compiler() -> bool:
    """Whether the shim can be compiled and works here: Linux with glibc, and a C compiler."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        return False
    header = ["cc", "-E", "-include", "gnu/libc-version.h", "-x", "c", "/dev/null"]
    return subprocess.run(header, check=False, capture_output=True).returncode == 0
