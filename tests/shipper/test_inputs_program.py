"""Standard input and named pipes of the real program: bytes arrive once and in order."""

import json
import os
import pty
import random
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from shipper.settings import ShipperSettings, reload
from tests.conftest import apply_topology
from tests.pages import page, samples
from tests.shipper.conftest import live_report, read_lines, read_stream, wait_for_lines
from tests.shipper.logs import ROOT, Ship, append, lines, run, wait_for_log
from tests.shipper.points import IN_MOVE, POINTS
from tests.support.processes import Process, Processes, proc, wait_until
from tests.support.suite import ask

pytestmark = pytest.mark.nats


def spooled(folder: Path) -> int:
    """Return how many bytes are in the segments."""
    paths = (folder / "state").glob("*/*-*-*-*")
    return sum(path.stat().st_size for path in paths if path.suffix != ".lock")


def lines_of(url: str, path: object) -> bytes:
    """Return the lines of the stream that came from a path."""
    blocks = (block for message in ask(url, read_stream) for block in message.blocks)
    return b"".join(block.lines for block in blocks if block.section.path == str(path))


@dataclass
class Way:
    """Ships the pipe as standard input, or by its name."""

    ship: Ship
    pipe: Path
    state: Path
    is_named: bool

    def start(self, url: str, *more: object, source: Path | None = None, **given: Any) -> Process:
        """Start the agent of web01; `source` is standard input instead of the pipe."""
        own = (*more, "--state-dir", self.state)
        if self.is_named:
            return self.ship(url, "--file", self.pipe, *own, **given)
        redirection = f"< {source or self.pipe}"
        return self.ship(url, "--file", "-", *own, redirection=redirection, **given)

    def end(self, process: Process, url: str, wanted: bytes) -> None:
        """Expect that all is shipped: without a writer standard input ends, a named pipe waits."""
        wait_for_lines(url, wanted, *[process] * self.is_named)
        if self.is_named:
            wait_until("runs", lambda: process.catches(signal.SIGTERM), 40, [process])
            process.terminate()
        assert process.wait(60) == 0, process.last_output()


@pytest.fixture(params=["standard input", "named pipe"])
def way(request: pytest.FixtureRequest, ship: Ship, pipe: Path, tmp_path: Path) -> Way:
    return Way(ship, pipe, tmp_path / "state", request.param == "named pipe")


ANY = b"one\n\n\0\0\xff\r\n\xfe\n" + b"same\n" * 7_000_000
ANY += b"x" * 3_000_000 + b"\n" + lines(0, 300_000) + b"\n\0unfinished"


def test_any_bytes_of_a_file_arrive_and_the_program_ends_with_its_input(
    logs_url: str, ship_input: Ship, tmp_path: Path
) -> None:
    (tmp_path / "redirected").write_bytes(ANY)
    process = ship_input(logs_url, f"< {tmp_path / 'redirected'}")

    assert process.wait(120) == 0, process.last_output()
    assert read_lines(logs_url) == ANY


def test_any_bytes_of_a_pipe_arrive_and_once_ends_when_its_writers_have_gone(
    logs_url: str, way: Way, tmp_path: Path
) -> None:
    with way.pipe.open("r+b", buffering=0) as writer:
        process = way.start(logs_url, "--once")
        writer.write(ANY)

    assert process.wait(120) == 0, process.last_output()
    assert read_lines(logs_url) == ANY + b"\n" * way.is_named, "others may write to a named pipe"
    assert spooled(tmp_path) == 0


def test_the_writer_waits_while_256_mib_are_not_acknowledged(
    own_broker: Any, ship_input: Ship, pipe: Path, tmp_path: Path
) -> None:
    process = ship_input(own_broker.url, f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"one\n")
        wait_for_lines(own_broker.url, b"one\n", process)
        own_broker.stop()
        writing = threading.Thread(target=_write_all, args=(writer, 300 << 20))
        writing.start()
        wait_until("it is spooled", lambda: spooled(tmp_path) >= 256 << 20, 90, [process])
        begin = live_report(process).waiting_seconds or 0.0
        has_waited = lambda: (live_report(process).waiting_seconds or 0.0) > begin + 1  # noqa: E731
        wait_until("it has waited for another second", has_waited, 40, [process])

        assert writing.is_alive()
        assert spooled(tmp_path) < 257 << 20
        process.kill()
        writing.join(10)


def _write_all(writer: IO[bytes], size: int) -> None:
    with suppress(BrokenPipeError):
        for _ in range(size >> 16):
            writer.write((b"x" * 63 + b"\n") * 1024)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_pipe_is_read_on_after_each_reader_was_killed(
    logs_url: str, way: Way, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    wanted = lines(0, 250_000)
    with way.pipe.open("r+b", buffering=0) as kept:
        writer = threading.Thread(target=_write_slowly, args=(kept, wanted, 0.005))
        writer.start()
        while writer.is_alive():
            process = way.start(logs_url)
            wait_for_log(process, "ships on")
            time.sleep(chance.uniform(0, 1.5))
            process.kill()
        last = way.start(logs_url, "--once")
        wait_for_log(last, "ships on")

    assert last.wait(90) == 0, last.last_output()
    found = read_lines(logs_url)
    assert found == wanted if way.is_named else _joined(found) == _joined(wanted)
    assert spooled(tmp_path) == 0


TRACE = b"1 ERROR failed\nTraceback (most recent call last):\nValueError: %d\n"
SHORT = b"1 INFO fine\n" + TRACE % 1 + b"1 INFO fine\n" + TRACE % 2
LONG = b"1 long\n" + b"".join(b" %d %b\n" % (n, b"x" * 100) for n in range(80_000))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), [TRACE % 0, SHORT]),
        (("--include-lines", "^ValueError"), [TRACE % 0, TRACE % 1 + TRACE % 2]),
        (("--exclude-lines", "^Traceback"), [b"1 INFO fine\n" * 2]),
    ],
)
def test_records_wait_for_their_end_and_are_filtered_and_sent_whole(
    logs_url: str, way: Way, options: tuple[str, ...], wanted: list[bytes]
) -> None:
    with way.pipe.open("r+b", buffering=0) as writer:
        process = way.start(logs_url, "--records", "python", "--record-timeout", "4s", *options)
        wait_for_log(process, "ships on")
        for line in (TRACE % 0).splitlines(keepends=True):
            writer.write(line)
            time.sleep(0.2)  # several rounds, without records
        wait_for_lines(logs_url, b"".join(wanted[:-1]), process)
        writer.write(SHORT)

    way.end(process, logs_url, b"".join(wanted))
    messages = ask(logs_url, read_stream)
    blocks = [block.lines for message in messages for block in message.blocks if block.lines]
    assert [one for one in blocks if b"ValueError: 0" in one] == wanted[:-1]
    assert {one.count(b"Traceback") == one.count(b"ValueError") for one in blocks} == {True}


def test_a_record_goes_on_in_the_next_segment_of_the_spool(logs_url: str, way: Way) -> None:
    before = (16 << 20) - 50  # bytes of a segment
    record = b"1 begin\n" + b" more\n" * 20 + b" last\n"
    with way.pipe.open("r+b", buffering=0) as writer:
        options = ("--record-start", "^[0-9]", "--include-lines", "^ last")
        process = way.start(logs_url, "--once", *options)
        writer.write(b"0 %b\n" % (b"x" * 997) * (before // 1000))
        writer.write(b"0 %b\n" % (b"x" * (before % 1000 - 3)) + record + b"2 next\n")

    assert process.wait(120) == 0, process.last_output()
    assert read_lines(logs_url) == record


def test_a_named_pipe_is_taken_over_where_the_other_agent_ended(
    logs_url: str, ship: Ship, pipe: Path, tmp_path: Path
) -> None:
    options = ("--file", pipe, "--state-dir", tmp_path / "state")
    first, wanted = ship(logs_url, *options), lines(0, 40_000)
    with pipe.open("r+b", buffering=0) as writer:
        writer.write(wanted[:1005])  # a part of line 35
        wait_for_lines(logs_url, lines(0, 34), first)
        refused = ship(logs_url, *options)
        assert refused.wait(40) == 1
        assert "another shipper on this machine reads" in refused.last_output()
        second = ship(logs_url, *options, "--take-over")
        wait_for_log(second, "ships on")
        writer.write(wanted[1005:])
        assert first.wait(60) != 0
        wait_for_lines(logs_url, wanted, second)
        writer.write(b"unfinished")
        wait_until("it is spooled", lambda: spooled(tmp_path) > len(wanted) % (16 << 20), 40)
        second.kill()
        _reboot(tmp_path)
        second.start()
        writer.write(b"another line\n")

        wait_for_lines(logs_url, wanted + b"unfinished" + b"another line\n", second)
        assert second.stop(12) == 0


def _reboot(folder: Path) -> None:
    """Have a spool as it is after a boot, by the id that the kernel gave to the one before."""
    (lock,) = (folder / "state").glob("*/*.lock")
    lock.write_bytes(b"0" * 36)


@pytest.mark.parametrize("point", ["gathered", "sending", "stored", "advanced"])
def test_after_kills_inside_a_long_record_no_other_line_is_between_its_pieces(
    logs_url: str, way: Way, tmp_path: Path, point: str
) -> None:
    (faults := tmp_path / "faults").mkdir()
    (log := tmp_path / "a.log").touch()
    process = way.start(
        *(logs_url, "--file", log, "--record-start", "^[0-9]", "--record-lines", 100_000),
        *("--round-size", "1MiB", "--include-lines", "^[0-9]"),  # the first piece decides
        environment={"LOGSHIP_FAULTS": str(faults)},
    )
    with way.pipe.open("r+b", buffering=0) as writer:
        writer.write(LONG + b"2 next\n")
        for _ in range(4):
            (faults / point).touch()
            wait_until("the agent is killed", lambda: not process.is_running(), 40)
            append(log, b"4 meanwhile\n" * 100)
            process.start()
        size = len(LONG) + 7 + log.stat().st_size
        wait_until("all is shipped", lambda: len(read_lines(logs_url)) >= size, 60, [process])
        shipped = read_lines(logs_url)

        assert len(shipped) == size
        assert shipped.count(LONG) == 1
        assert process.stop(10) == 0


def _write_slowly(pipe: IO[bytes], content: bytes, pause: float) -> None:
    for start in range(0, len(content), 10_000):
        pipe.write(content[start : start + 10_000])
        time.sleep(pause)


def _joined(lines: bytes) -> bytes:
    # after a kill in the middle of a line, the next standard input begins with another one
    return lines.replace(b"\n", b"")


PASSED_AGAIN = ("gathered", "sending", "stored", "advanced")
"""Points that an agent passes with each round."""


def test_an_input_pipes_and_files_arrive_once_after_kills_at_every_point(
    logs_url: str, ship: Ship, tmp_path: Path
) -> None:
    (faults := tmp_path / "faults").mkdir()
    first, *others = [tmp_path / name for name in ("input", "one.fifo", "two.fifo", "app.log")]
    sources = [option for one in ("-", *others) for option in ("--file", one)]
    options = (*sources, "--state-dir", tmp_path / "state", "--round-size", "65536")
    wanted = lines(0, 60_000)

    def start(*more: str) -> Process:
        environment = {"LOGSHIP_FAULTS": str(faults)}
        given = {"environment": environment, "redirection": f"< {first}"}
        return ship(logs_url, *options, *more, **given)

    with ExitStack() as stack:
        for pipe in (first, *others[:2]):
            os.mkfifo(pipe)
            stack.enter_context(pipe.open("r+b", buffering=0))
        for path in (first, *others):
            file = stack.enter_context(path.open("ab", buffering=0))
            writer = threading.Thread(target=_write_slowly, args=(file, wanted, 0.1), daemon=True)
            writer.start()
            stack.callback(writer.join, 60)
        points = [point for point in POINTS if point not in IN_MOVE]
        for number, point in enumerate((*points, *PASSED_AGAIN)):
            (faults / point).write_bytes(b"." * (number % 3 if point in PASSED_AGAIN else 0))
            process = start()
            assert process.wait(40) == -signal.SIGKILL, process.last_output()
        last = start("--once")
        wait_for_log(last, "ships on")

    assert last.wait(90) == 0, last.last_output()
    assert _joined(lines_of(logs_url, "-")) == _joined(wanted)
    assert {path: lines_of(logs_url, path) for path in others} == dict.fromkeys(others, wanted)
    assert spooled(tmp_path) == 0


def test_writers_of_a_named_pipe_come_and_go_and_nothing_spins_meanwhile(
    logs_url: str, ship: Ship, pipe: Path, tmp_path: Path
) -> None:
    process = ship(logs_url, "--file", pipe, "--state-dir", tmp_path / "state")
    wait_for_log(process, "ships on")
    for count, written in enumerate((b"1\n", b"2", b"3\n"), 1):
        pipe.write_bytes(written)  # waits for a reader
        wait_for_lines(logs_url, b"1\n2\n3\n"[: 2 * count], process)
    began = _used(process)
    time.sleep(1)
    used = _used(process) - began
    pipe.unlink()
    os.mkfifo(pipe)
    pipe.write_bytes(b"4\n")

    wait_for_lines(logs_url, b"1\n2\n3\n4\n", process)
    assert used < 0.3
    assert lines_of(logs_url, pipe) == b"1\n2\n3\n4\n"
    assert process.stop(12) == 0


def test_the_last_line_of_a_writer_is_ended_although_it_fills_a_segment(
    logs_url: str, ship: Ship, pipe: Path, tmp_path: Path
) -> None:
    process = ship(logs_url, "--file", pipe, "--state-dir", tmp_path / "state")
    wait_for_log(process, "ships on")
    written = (b"x" * 63 + b"\n") * (1 << 18)
    written = written[:-1] + b"x"  # 16 MiB
    pipe.write_bytes(written)
    wait_for_lines(logs_url, written + b"\n", process)
    pipe.write_bytes(b"next\n")

    wait_for_lines(logs_url, written + b"\nnext\n", process)
    assert process.stop(12) == 0


def _used(process: Process) -> float:
    """Return the seconds of CPU that a process has used."""
    ticks = proc(process.pid, "stat").rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def test_input_without_a_broker_before_sigterm_is_shipped_at_the_next_start(
    own_broker: Any, logs_url: str, way: Way, tmp_path: Path
) -> None:
    in_pipe, nothing = lines(0, 2000), Path("/dev/null")
    process = way.start(own_broker.url)
    with way.pipe.open("wb", buffering=0) as writer:
        writer.write(b"one\n")
        wait_for_lines(own_broker.url, b"one\n", process)
        own_broker.stop()
        writer.write(b"two\nthr")
        wait_until("it is spooled", lambda: spooled(tmp_path) >= 7, 40, [process])
        other = way.start(logs_url, source=nothing)
        assert other.wait(60) == int(way.is_named), other.last_output()
        assert ("another shipper on this machine reads" in other.read_log()) == way.is_named
        assert (read_lines(logs_url), spooled(tmp_path) >= 7) == (b"", True)
        began = time.monotonic()
        with process.stopped():
            writer.write(in_pipe)
            process.terminate()

        assert process.wait(12) == 0, process.last_output()

    assert time.monotonic() - began < 10
    assert "next start with the same options" in process.read_log()
    own_broker.start()
    again = way.start(own_broker.url, source=nothing)
    way.end(again, own_broker.url, b"one\ntwo\nthr" + in_pipe)
    assert way.is_named or spooled(tmp_path) == 0


def test_input_before_a_first_session_survives_sigterm_and_sigkill(
    own_server: Any, way: Way, tmp_path: Path, own_host: str
) -> None:
    written, host = lines(0, 50_000), ("--host", own_host)
    is_kept = lambda: spooled(tmp_path) == len(written)  # noqa: E731
    own_server.stop()
    process = way.start(own_server.url, *host)
    way.pipe.write_bytes(written)  # more than a pipe holds; its writer has ended by now
    wait_until("it is spooled", is_kept, 40, [process])
    (status,) = json.loads(run("status", "--json", *host).stdout)
    assert process.stop(12) == 0
    own_server.start()
    with way.pipe.open("r+b", buffering=0) as writer:
        for number in range(2):  # the broker has no stream and no number of partitions
            process = way.start(own_server.url, *host)
            writer.write(more := lines(10 * number, 10 * number + 10))
            written += more
            wait_until("it is kept", is_kept, 40, [process])
            process.kill()
    apply_topology(own_server.url)
    last = way.start(own_server.url, *host, source=Path("/dev/null"))

    way.end(last, own_server.url, written)
    assert status["files"][0]["behind_bytes"] == len(lines(0, 50_000))


_WITH_INPUT = """
import os, socket, sys
kind, path, *command = sys.argv[1:]
if kind.endswith("socket"):
    source = socket.socket(socket.AF_UNIX)
    source.connect(path)
    descriptor = source.fileno()
    if kind.startswith("two-way"):
        source.sendall(b"nobody reads this")
else:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
os.set_blocking(descriptor, not kind.startswith("non-blocking"))
os.dup2(descriptor, 0)
os.execv(command[0], command)
"""


@contextmanager
def _writer_of(kind: str, location: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """Make an input; yields its path, and a function that opens it for writing."""
    if kind.endswith("socket"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(location))
            listener.listen()
            yield str(location), lambda: listener.accept()[0].detach()
    elif kind == "terminal":
        master, slave = pty.openpty()
        yield os.ttyname(slave), lambda: master
        os.close(slave)
    else:
        os.mkfifo(location)
        yield str(location), lambda: os.open(location, os.O_WRONLY)


@pytest.fixture
def ship_kind(logs_url: str, processes: Processes, tmp_path: Path) -> Ship:
    """Return a function that starts the agent of web01 with an input of a kind, from a path."""
    words = ["--server", logs_url, "--host", "web01", "--file", "-", "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "shipper", *words, "--state-dir", tmp_path / "state"]
    with_input = [sys.executable, "-c", _WITH_INPUT]
    return lambda *input_: processes.start("shipper", [*with_input, *input_, *command], folder=ROOT)


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        *(("non-blocking pipe", 0), ("socket", 0), ("non-blocking socket", 0)),
        *(("non-blocking terminal", 0), ("two-way socket", 1)),
    ],
)
def test_inputs_of_every_kind_are_read_and_one_that_fails_ends_the_program_with_1(
    logs_url: str, ship_kind: Ship, tmp_path: Path, kind: str, ends: int
) -> None:
    with _writer_of(kind.split()[-1], tmp_path / "input") as (path, open_writer):
        process = ship_kind(kind, path)
        wait_for_log(process, "ships on")
        descriptor = open_writer()
        os.write(descriptor, b"one\ntwo\nthr")
        wait_for_lines(logs_url, b"one\ntwo\n", process)
        assert page(process, "/healthz") == (200, "ok\n")  # although it is silent
        os.write(descriptor, b"ee\n")
        wait_for_lines(logs_url, b"one\ntwo\nthree\n", process)
        if kind.endswith("terminal"):
            os.write(descriptor, b"\x04")  # the end of the input, for a terminal
        else:
            os.close(descriptor)  # of a socket with unread bytes, which resets the connection

        assert process.wait(40) == ends, process.last_output()
    failure = "standard input: cannot be read: Connection reset by peer"
    assert (failure in process.read_log()) == bool(ends)
    assert "WARNING" not in process.read_log()


def limit_files(process: Process, size: int) -> int:
    """Have files of at most `size` bytes written, as on a full disk; return the limit before."""
    before, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, most))
    return before


def test_a_full_disk_is_reported_and_loses_no_line(logs_url: str, way: Way) -> None:
    process = way.start(logs_url, "--listen", "127.0.0.1:0")
    with way.pipe.open("wb", buffering=0) as writer:
        writer.write(lines(0, 10))
        wait_for_lines(logs_url, lines(0, 10), process)
        most = limit_files(process, 100_000)
        writer.write(lines(10, 4000))
        wait_for_log(process, "File too large")
        code, reason = page(process, "/healthz")
        assert (code, "File too large" in reason) == (503, True)
        limit_files(process, most)
        writer.write(lines(4000, 9000))

    way.end(process, logs_url, lines(0, 9000))
    assert "is read again" in process.read_log()
    assert process.read_log().count("File too large") == 1


def test_bytes_that_a_full_disk_left_in_the_pipe_are_reported_at_sigterm(
    own_broker: Any, way: Way
) -> None:
    own_broker.stop()
    process = way.start(own_broker.url)
    with way.pipe.open("wb", buffering=0) as writer:
        wait_for_log(process, "broker away")
        limit_files(process, 5000)
        writer.write(b"1234567\n" * 1000)
        wait_for_log(process, "File too large")

        assert process.stop(12) == 1
    name = way.pipe if way.is_named else "standard input"
    assert f"3000 bytes of {name} were not read (/" in process.read_log()


@pytest.mark.parametrize(
    ("redirection", "options", "code", "reason"),
    [
        pytest.param("<&-", [], 2, "standard input is closed", id="closed"),
        pytest.param("0> /dev/null", [], 2, "open for writing only", id="written"),
        pytest.param("< /dev/null", [], 0, "", id="nothing"),
        pytest.param("", ["--state-dir", "/dev/null/x"], 1, "check --state-dir", id="no folder"),
    ],
)
def test_an_empty_input_is_an_end_and_an_unusable_one_an_error(
    logs_url: str, ship_input: Ship, redirection: str, options: list[str], code: int, reason: str
) -> None:
    process = ship_input(logs_url, redirection, *options)

    assert process.wait(60) == code, process.last_output()
    assert reason in process.read_log()
    assert "Traceback" not in process.read_log()


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("-", "-"), "--file - is given twice"),
        (("pipe", "./pipe"), "pipe is given twice"),
        (("pipe", "link"), "link is the same pipe as "),
        (("-", "pipe"), "pipe is the same pipe as -"),
    ],
)
def test_an_input_that_is_named_twice_is_refused_in_one_line(
    logs_url: str, ship: Ship, pipe: Path, tmp_path: Path, names: tuple[str, str], reason: str
) -> None:
    (tmp_path / "link").symlink_to(pipe)
    files = [f"--file={name if name == '-' else f'{tmp_path}/{name}'}" for name in names]
    with pipe.open("r+b", buffering=0):
        process = ship(logs_url, *files, redirection=f"< {pipe}")

        assert process.wait(40) == 78
    assert reason in process.read_log()
    assert process.read_log().count("\n") == 0


@pytest.mark.parametrize("loud", ["pipe", "a.log"])
def test_a_loud_source_keeps_no_quiet_one_waiting_and_all_are_shown(
    own_broker: Any, ship: Ship, pipe: Path, tmp_path: Path, own_host: str, loud: str
) -> None:
    many, log = lines(0, 700_000), tmp_path / "a.log"
    log.write_bytes(many if loud == "a.log" else b"quiet\n")
    files = [f"--file={name}" for name in ("-", pipe, log)]
    options = ("--state-dir", tmp_path / "state", "--listen", "127.0.0.1:0", "--host", own_host)
    own_broker.stop()
    process = ship(own_broker.url, *files, *options, redirection="< /dev/null")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(many if loud == "pipe" else b"quiet\n")
        expected = len(many) if loud == "pipe" else 6
        wait_until("it is spooled", lambda: spooled(tmp_path) == expected, 40, [process])
        (host,) = json.loads(run("status", "--json", "--host", own_host).stdout)
        own_broker.start()
        everything = {str(pipe): expected, str(log): log.stat().st_size}
        arrived = lambda: all(len(lines_of(own_broker.url, p)) == n for p, n in everything.items())  # noqa: E731
        wait_until("all is there", arrived, 60, [process])
        metrics = samples(page(process, "/metrics")[1])
        checked = run("check", *files, "--server", own_broker.url, "--host", own_host)
    blocks = [block for message in ask(own_broker.url, read_stream) for block in message.blocks]
    paths = [block.section.path for block in blocks]

    assert paths.index(str(log if loud == "pipe" else pipe)) < 3
    assert {one["path"]: one["behind_bytes"] for one in host["files"]}[str(pipe)] == expected
    assert metrics["logshipper_behind_bytes"] == 0
    assert f"{pipe}: read while the agent runs" in checked.stdout
    assert process.stop(12) == 0


def test_a_reload_changes_files_and_names_inputs_that_need_a_restart(pipe: Path) -> None:
    names = [("-", "a.log"), ("-", "b.log"), ("-", "b.log", str(pipe)), ("b.log",)]
    first, files, more, fewer = (ShipperSettings(file=one) for one in names)

    assert reload(first, files, {"-": "-"}, follows=True)[1] == "changed: file"
    for other, follows in ((more, True), (fewer, True), (files, False)):
        settings, changes = reload(first, other, {"-": "-"}, follows=follows)
        assert (settings.file, changes) == (names[0], "nothing to change; needs a restart: file")
