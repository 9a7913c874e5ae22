"""Real ways of rotation: a writer, a rotator as the distribution has it, and what is followed.

Each rotator keeps more files than are rotated while no shipper runs, and none of them loses a line
by itself: where one documents a race with its writer, the writer waits meanwhile.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.shipper import numbered_writer
from tests.shipper.numbered_writer import line_of
from tests.support.processes import Process, Processes, proc, stat_of, wait_until

_SECONDS = 20.0
_WRITER = str(Path(numbered_writer.__file__))
_CONFIGURATION = """
"{log}" {{
  rotate 50
  {directives}
  {postrotate}
}}
"""
_REOPEN = """postrotate
    {signal}
    until ls -l /proc/{pid}/fd | grep -q -- "-> {log}$"; do sleep 0.02; done
  endscript"""


def _now() -> float:
    return time.time()  # noqa: TID251 - the clock by which rotators name files


def _by_itself(_: "Rotated") -> None:
    """Leave the rotation to the writer, or to the program that it writes to."""


@dataclass(frozen=True)
class Way:
    """A way of rotation; `name` is also its host.

    `programs` are those that must be installed, `follow` the patterns of the shipper, below the
    folder of the logs. `how` is the writer's; its standard output goes to the command `pipe`, in
    which `{folder}` is replaced by that folder. `link` is a link to the log that is made before.
    """

    name: str
    programs: Sequence[str] = ()
    follow: Sequence[str] = ("app.log",)
    how: str = "append"
    pipe: str = ""
    link: str = ""
    rotate: Callable[["Rotated"], object] = _by_itself

    @property
    def missing(self) -> str:
        """The packages of its programs that are not installed; empty where all are."""
        needed = (one for one in self.programs if shutil.which(one, path=_PATH) is None)
        return ", ".join(f"{_PACKAGES.get(one, one)} (for {one})" for one in needed)


@dataclass
class Rotated:
    """A log that is written and rotated in `folder`; the test's own files are next to that."""

    way: Way
    folder: Path
    rotations: int = 0
    writer: Process | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        return self.folder / "app.log"

    @contextmanager
    def being_written(self, processes: Processes) -> Iterator[None]:
        """Write until the end of the block, and until all of it is in the files."""
        (self.folder / "config").write_text(_SVLOGD, "ascii")
        if link := self.way.link and self.folder / self.way.link:
            link.parent.mkdir()
            link.symlink_to(self.log)
        count = self._path_of("count")
        words = [sys.executable, "-I", _WRITER, self.way.how, self.way.name, str(self.log), count]
        if self.way.pipe:
            command = self.way.pipe.format(folder=self.folder)
            words = ["sh", "-c", '"$@" | exec ' + command, "sh", *words]
        process = self.writer = processes.start(f"writer-{self.way.name}", words)
        wait_until("the log is there", lambda: bool(self._files()), _SECONDS, [process])
        yield
        os.kill(self.pid_of("python"), signal.SIGTERM)
        process.wait(_SECONDS)  # with a code of the rotator's own: cronolog ends with 3

    def rotate(self) -> None:
        """Rotate once, and wait until that is done."""
        before = self._files()
        self.way.rotate(self)
        wait_until(f"{self.way.name} rotates", lambda: self._files() != before, _SECONDS)
        self.rotations += 1

    def expected(self) -> bytes:
        """Return all that was written."""
        lines = range(int(Path(self._path_of("count")).read_text("ascii")))
        return b"".join(f"{line_of(self.way.name, number)}\n".encode() for number in lines)

    def pid_of(self, program: str) -> int:
        """Return the process id of the writer, or of the rotator that it writes to."""
        assert self.writer is not None
        living = {proc(pid, "comm").strip(): pid for pid in self.writer.tree()}
        return next(pid for name, pid in living.items() if name.startswith(program))

    def run(self, *command: str) -> None:
        """Run a program to its end; it must do what it is asked to."""
        environment = {**os.environ, "PATH": _PATH}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=self.folder
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have the writer write nothing meanwhile."""
        pid = self.pid_of("python")
        os.kill(pid, signal.SIGSTOP)
        wait_until("the writer waits", lambda: stat_of(pid)[0] == "T", _SECONDS)
        yield
        os.kill(pid, signal.SIGCONT)

    def logrotate(self, directives: str, postrotate: str) -> None:
        """Rotate by logrotate."""
        if "dateext" in directives:
            self.await_next_second()
        path, values = self._path_of("logrotate.conf"), {"log": self.log, "pid": self.writer_pid}
        script = postrotate.format(**values)
        text = _CONFIGURATION.format(log=self.log, directives=directives, postrotate=script)
        Path(path).write_text(text, "utf-8")
        self.run("logrotate", "-f", "-s", self._path_of("logrotate.state"), path)

    def reopen(self) -> None:
        """Have the writer open the log again, and wait until it has."""
        os.kill(self.writer_pid, signal.SIGHUP)
        wait_until("the writer has the new file", lambda: self.log in self._held(), _SECONDS)

    def await_next_second(self) -> None:
        """Return when names of rotated files that hold the second are new ones."""
        begun, late = int(_now()), 0.02  # seconds by which time(2) may be late
        wait_until("a second ends", lambda: int(_now() - late) > begun, _SECONDS)

    @property
    def writer_pid(self) -> int:
        return self.pid_of("python")

    def _held(self) -> list[Path]:
        found = []
        for one in Path(f"/proc/{self.writer_pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                found.append(one.readlink())
        return found

    def _files(self) -> set[tuple[str, int]]:
        found = set()
        for path in self.folder.rglob("*"):
            with suppress(FileNotFoundError):  # renamed meanwhile
                if path.is_file() and path.name not in _NO_LOGS and path.stat().st_size:
                    found.add((str(path), path.stat().st_ino))
        return found

    def _path_of(self, name: str) -> str:
        return str(self.folder.with_name(f"{self.folder.name}.{name}"))


_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_SVLOGD = "s1000000\nn50\n"  # its settings are in a file
_NO_LOGS = {"config", "lock", "state"}  # of svlogd, multilog and s6-log
_PACKAGES = {
    "svlogd": "runit",
    "multilog": "daemontools",
    "s6-log": "s6",
    "rotatelogs": "apache2-utils",
    "savelog": "debianutils",
    "gzip": "gzip",
    "xz": "xz-utils",
}


def _logrotate(name: str, directives: str, *programs: str, **fields: object) -> Way:
    """Return a way of logrotate whose writer opens its log again at SIGHUP."""
    postrotate = _REOPEN.replace("{signal}", "kill -HUP {pid}")
    rotate = lambda one: one.logrotate(directives, postrotate)  # noqa: E731
    return Way(f"logrotate-{name}", ("logrotate", *programs), rotate=rotate, **fields)  # type: ignore[arg-type]


def _copying(name: str, directives: str, *programs: str) -> Way:
    """Return a way of logrotate whose writer keeps its file; it waits while that is copied."""

    def rotate(one: Rotated) -> None:
        with one.paused():
            one.logrotate(directives, "")

    return Way(f"logrotate-{name}", ("logrotate", *programs), rotate=rotate)


def _watched(one: Rotated) -> None:
    # the writer makes the file; one that logrotate meets when it does so is moved to `.backup`
    one.logrotate("nocreate", _REOPEN.replace("{signal}", ""))


def _alarm(program: str) -> Callable[[Rotated], object]:
    return lambda one: os.kill(one.pid_of(program), signal.SIGALRM)


def _savelog(*options: str) -> Callable[[Rotated], object]:
    def rotate(one: Rotated) -> None:
        if "-d" in options:
            one.await_next_second()
        one.run("savelog", "-c", "50", *options, str(one.log))
        one.reopen()

    return rotate


def _piped(
    name: str, command: str, *follow: str, rotate: Callable[["Rotated"], object] = _by_itself
) -> Way:
    """Return a way whose writer writes to the standard input of a program."""
    program = command.split()[0]
    return Way(name, (program,), follow, how="stdout", pipe=command, rotate=rotate)


def _kubelet(one: Rotated) -> None:
    one.await_next_second()
    one.log.rename(one.log.with_name(time.strftime("app.log.%Y%m%d-%H%M%S")))
    one.reopen()


_DATES = "%Y%m%d-%H%M%S"
_DATEFORMAT = "dateext\n  dateformat -%Y%m%d-%s"
_DATEEXT = f"create\n  {_DATEFORMAT}"

WAYS = (
    _logrotate("create", "create"),
    _logrotate("nocreate", "nocreate"),
    _logrotate("compress", "create\n  compress", "gzip"),
    _logrotate("delaycompress", "create\n  compress\n  delaycompress", "gzip"),
    *(
        _logrotate(tool, f"create\n  compress\n  compresscmd {path}\n  compressext {end}", tool)
        for tool, end in (("xz", ".xz"), ("zstd", ".zst"), ("bzip2", ".bz2"))
        for path in (shutil.which(tool) or tool,)
    ),
    _logrotate("dateext", _DATEEXT),
    _logrotate("dateext-compress", f"{_DATEEXT}\n  compress", "gzip"),
    _logrotate("extension", "create\n  extension .log"),
    _logrotate("extension-compress", "create\n  extension .log\n  compress", "gzip"),
    _logrotate("extension-dateext", f"{_DATEEXT}\n  extension .log"),
    _logrotate("olddir", "create\n  olddir old\n  createolddir", follow=("app.log", "old/*")),
    _logrotate("start-0-rotate-7", "create\n  start 0\n  rotate 7"),
    _logrotate("renamecopy", "create\n  renamecopy"),
    _copying("copytruncate", "copytruncate"),
    _copying("copytruncate-compress", "copytruncate\n  compress", "gzip"),
    _copying("copytruncate-dateext", f"copytruncate\n  {_DATEFORMAT}"),
    _copying("copy", "copy"),
    Way("python-watched", ("logrotate",), how="watched", rotate=_watched),
    Way("python-rotating", how="rotating"),
    Way("python-timed", how="timed"),
    Way("savelog", ("savelog", "gzip"), rotate=_savelog()),
    Way("savelog-plain", ("savelog",), rotate=_savelog("-l")),
    Way("savelog-dated", ("savelog",), rotate=_savelog("-l", "-d")),
    Way("kubelet", follow=("link/app.log",), link="link/app.log", rotate=_kubelet),
    _piped("svlogd", "svlogd {folder}", "current", rotate=_alarm("svlogd")),
    _piped("multilog", "multilog s1000000 n50 {folder}", "current", rotate=_alarm("multilog")),
    _piped("s6-log", "s6-log s1000000 n50 {folder}", "current", rotate=_alarm("s6-log")),
    _piped("rotatelogs", f"rotatelogs {{folder}}/app.{_DATES}.log 1", "app.*.log"),
    _piped(
        "rotatelogs-link",
        f"rotatelogs -L {{folder}}/app.log {{folder}}/app.{_DATES}.log 1",
        "app.log",
    ),
    _piped("rotatelogs-numbered", "rotatelogs -n 50 {folder}/app.log 1", "app.log*"),
    _piped("cronolog", f"cronolog {{folder}}/app-{_DATES}.log", "app-*.log"),
    _piped(
        "cronolog-symlink",
        f"cronolog --symlink={{folder}}/app.log {{folder}}/app-{_DATES}.log",
        "app.log",
    ),
)
"""All ways, each with a name of its own."""
