"""Show the whole path in a minute: three hosts, two partitions, every program killed once.

Prints what happens, then a table that says whether every line arrived once, in order, byte for
byte.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from bench.text_table import table
from tests.support.oracle import Verdict, judge_host
from tests.support.processes import Process, Processes, ProgramDied, TookTooLong, leave, wait_until
from tests.support.received import segments_of
from tests.support.suite import Suite
from tests.support.traffic import Traffic

_HOSTS = ("web01", "db01.example.net", "mail01")
_REAL_LOGS = ("syslog", "messages", "kern.log", "daemon.log", "dpkg.log", "alternatives.log")
_SAMPLE = Path(__file__).with_name("sample.log")
_LINES_PER_SECOND = 400
_PAUSE = 2.0
_KEPT = 5


@dataclass(frozen=True, slots=True)
class _Scene:
    """The programs of the demo; `files` are the source files of each host."""

    suite: Suite
    files: dict[str, list[Path]]
    broker: Process
    receivers: tuple[Process, ...]
    shippers: tuple[Process, ...]


class _Clock:
    """Says things with the time since the beginning before them."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


@click.command()
def main() -> None:
    """Run the whole path for half a minute: three hosts, two partitions, all programs killed once.

    Ends with 0 only when every line arrived exactly once, in order, byte for byte.
    """
    sys.exit(_demonstrated())


def _demonstrated() -> int:
    folder = Path(tempfile.mkdtemp(prefix="logship-demo-"))
    clock = _Clock()
    try:
        with Processes(folder) as processes:
            scene, verdicts = _play(folder, processes, clock)
    except (ProgramDied, TookTooLong) as error:
        print(f"demo: {error}\nThe programs' logs are in {folder}.", file=sys.stderr)
        return 1
    shutil.rmtree(folder / "store", ignore_errors=True)
    _show(scene, verdicts)
    if not all(verdict.is_perfect for verdict in verdicts.values()):
        return 1
    print("\nEvery line arrived exactly once, in order, byte for byte.")
    return 0


def _play(folder: Path, processes: Processes, clock: _Clock) -> tuple[_Scene, dict[str, Verdict]]:
    scene = _set_up(folder, processes, clock)
    written = [scene.files[host][0] for host in _HOSTS]
    with Traffic(written, _LINES_PER_SECOND):
        clock.say(f"three applications write about {_LINES_PER_SECOND} lines a second each")
        _kill_each_once(scene, clock, lambda: _progress(scene, clock))
    clock.say("the applications have stopped writing")
    everything = {host: sum(map(_size, files)) for host, files in scene.files.items()}
    wait_until(
        "everything is received",
        lambda: all(_received(scene, host) >= size for host, size in everything.items()),
        100,
    )
    clock.say("everything is received; the programs get SIGTERM")
    for process in (*scene.shippers, *scene.receivers, scene.broker):
        process.stop()
    clock.say("stopped; every line that was written is compared with the received files")
    return scene, {
        host: judge_host(files, scene.suite.output, host) for host, files in scene.files.items()
    }


def _set_up(folder: Path, processes: Processes, clock: _Clock) -> _Scene:
    suite = Suite(folder, processes, partitions=2)
    clock.say(f"everything of this demo is in {folder}")
    broker = suite.start_broker()
    clock.say(f"logbroker: a real nats-server at {suite.url}, two partitions")
    receivers = tuple(suite.start_receiver([number]) for number in (0, 1))
    for number, receiver in enumerate(receivers):
        suite.wait_for_receiver(receiver, [number])
    clock.say("logreceiver, twice: one Spark for each partition")
    files = {host: [folder / "hosts" / host / "app.log"] for host in _HOSTS}
    real, where = _real_log(folder / "hosts" / _HOSTS[0])
    files[_HOSTS[0]].append(real)
    shippers = tuple(suite.start_shipper(host, paths) for host, paths in files.items())
    clock.say(f"logshipper, three times: {', '.join(_HOSTS)}; the first also ships {where}")
    return _Scene(suite, files, broker, receivers, shippers)


def _real_log(folder: Path) -> tuple[Path, str]:
    """Copy a log of this machine, so that it does not change during the comparison; name it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (Path("/var/log") / name for name in _REAL_LOGS):
        if os.access(path, os.R_OK) and path.is_file() and 0 < path.stat().st_size < 20_000_000:
            return Path(shutil.copy(path, folder / path.name)), f"a copy of {path}"
    return Path(shutil.copy(_SAMPLE, folder / "dpkg.log")), f"a copy of {_SAMPLE.name}"


def _kill_each_once(scene: _Scene, clock: _Clock, progress: Callable[[], None]) -> None:
    victims = (
        scene.shippers[0],
        scene.receivers[0],
        scene.broker,
        *scene.shippers[1:],
        scene.receivers[1],
    )
    for victim in victims:
        with _every_second(_PAUSE, progress):
            victim.kill()
        clock.say(f"kill -9 {victim.name}; started again")
        victim.start()
    with _every_second(_PAUSE, progress):
        pass


@contextmanager
def _every_second(pause: float, progress: Callable[[], None]) -> Iterator[None]:
    """Let `pause` seconds pass before the body, showing the progress meanwhile."""
    until = time.monotonic() + pause
    while (rest := until - time.monotonic()) > 0:
        time.sleep(min(rest, 1.0))
        progress()
    yield


def _progress(scene: _Scene, clock: _Clock) -> None:
    written = sum(_size(path) for files in scene.files.values() for path in files)
    received = sum(_received(scene, host) for host in _HOSTS)
    clock.say(f"written {written / 1e6:6.2f} MB   received {received / 1e6:6.2f} MB")


def _received(scene: _Scene, host: str) -> int:
    return sum(map(_size, segments_of(scene.suite.output, host)))


def _size(path: Path) -> int:
    return path.stat().st_size


def _show(scene: _Scene, verdicts: dict[str, Verdict]) -> None:
    counted = ("written", "received", "missing", "repeated", "reordered", "torn", "foreign")
    rows = [
        [host, *(str(getattr(found, name)) for name in counted), _say_equal(found)]
        for host, found in verdicts.items()
    ]
    print(f"\n{table(['host', *counted, 'bytes equal'], rows)}\n")
    for host, found in verdicts.items():
        if not found.is_perfect:
            print(f"{host}: {found}")
    live = scene.suite.output / f"{_HOSTS[1]}.log"
    print(f"written   {scene.suite.folder / 'hosts'}\nreceived  {scene.suite.output}")
    print(f"\nThe last lines of {live}:")
    for line in live.read_text("utf-8", "replace").splitlines()[-_KEPT:]:
        print(f"  {line[:150]}")


def _say_equal(found: Verdict) -> str:
    return "yes" if found.bytes_equal else "NO"


if __name__ == "__main__":
    for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, leave)  # so that no program stays behind
    main()
