"""Control over `shim.c` between a program and libc: a page of memory for each program."""

import ctypes
import mmap
import shutil
import subprocess
import sys
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")


class _Page(ctypes.Structure):
    # as `struct control` in `shim.c`
    _fields_ = (
        *(("clock", ctypes.c_int64), ("calls", ctypes.c_uint32), ("error", ctypes.c_int32)),
        *(("left", ctypes.c_int32), ("every", ctypes.c_uint32), ("seen", ctypes.c_uint32)),
        *(("hits", ctypes.c_uint32), ("delay", ctypes.c_uint32), ("under", ctypes.c_char * 4096)),
    )


class Calls(IntFlag):
    """Kinds of calls: syncs, writes, opening to write, changes of names, changes of lengths."""

    SYNC, WRITE, OPEN, NAMES, LENGTH = 1, 2, 4, 8, 16
    ALL = 31


class Control:
    """What one program and its children are refused, at once, running ones too."""

    def __init__(self, path: Path) -> None:
        """Make the page, in a file of its own; nothing is refused."""
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(_Page)))
        with path.open("r+b") as file:
            self._page = _Page.from_buffer(mmap.mmap(file.fileno(), 0))

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
        """Have calls below the folder `under` fail with `error`, an errno.

        Without an error, writes write half, and syncs take `delay` seconds longer. Hits each
        `every`th call, `times` calls in all (below 0: until `rest`).
        """
        self.rest()
        page = self._page
        page.error, page.left, page.every = error, times, every
        page.seen = page.hits = 0
        page.delay, page.under = round(delay * 1_000_000), str(under).encode()
        page.calls = calls  # the last: from now on it is hit

    def rest(self) -> None:
        self._page.calls = 0

    def step(self, seconds: float) -> None:
        """Have the clock show the true time and so much more, or less."""
        self._page.clock = round(seconds * 1_000_000_000)

    @property
    def ahead(self) -> float:
        """The seconds of the last `step`."""
        return float(self._page.clock / 1_000_000_000)

    @property
    def hits(self) -> int:
        return int(self._page.hits)


class Shim:
    """The library, compiled into a folder of this run, with the pages of all programs."""

    def __init__(self, folder: Path) -> None:
        """Compile it; raises `CalledProcessError` where the compiler refuses."""
        self._folder = folder
        self._library = folder / "shim.so"
        folder.mkdir()
        compiler = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        arguments = [*compiler, "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(arguments, check=True)
        self.controls: dict[str, Control] = {}

    def environment(self, name: str) -> Mapping[str, str]:
        """Return what a program is to be started with, so that it is controlled under this name."""
        control = self.control(name)
        return {"LD_PRELOAD": str(self._library), "LOGSHIP_CHAOS_CONTROL": str(control.path)}

    def control(self, name: str) -> Control:
        """Return the control of a program, which may be started later."""
        if name not in self.controls:
            self.controls[name] = Control(self._folder / f"{name}.control")
        return self.controls[name]


def have_compiler() -> bool:
    """Whether the shim can be compiled and works here: Linux with glibc, and a C compiler."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        return False
    header = ["cc", "-E", "-include", "gnu/libc-version.h", "-x", "c", "/dev/null"]
    return subprocess.run(header, check=False, capture_output=True).returncode == 0
