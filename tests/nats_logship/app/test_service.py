"""How a program ends after a signal, and what it sends to systemd (sd_notify(3))."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from nats_logship.app.service import Notifier
from tests.manager import Manager


@pytest.mark.parametrize("prefix", ["", "@"], ids=["path", "abstract"])
def test_each_state_is_one_datagram_and_the_same_status_is_sent_once(
    tmp_path: Path, prefix: str
) -> None:
    with closing(Manager(tmp_path, prefix)) as manager:
        notifier = Notifier({"NOTIFY_SOCKET": manager.address})

        notifier.send("RELOADING=1", "MONOTONIC_USEC=1234567")
        notifier.status("reading\nREADY=1")
        notifier.status("reading\nREADY=1")

        assert manager.listen() == [
            *("RELOADING=1\nMONOTONIC_USEC=1234567", "STATUS=reading\\nREADY=1")
        ]


@pytest.mark.parametrize("address", ["vsock:2:1234", "/nowhere/notify", "/" + "x" * 300])
def test_an_unreachable_service_manager_is_ignored(address: str) -> None:
    Notifier({"NOTIFY_SOCKET": address}).send("READY=1")


def test_the_watchdog_of_another_process_is_ignored() -> None:
    ours = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    other = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}

    assert Notifier(ours).watchdog == 1.0
    assert Notifier(other).watchdog is None
    assert Notifier({"WATCHDOG_USEC": "soon"}).watchdog is None
    assert ours == {}


PROGRAM = """
import asyncio, os, sys, time
from nats_logship.app.service import Notifier, Service
from nats_logship.app.signals import block_signals
class Slow:
    def __del__(self): pause(6)
class View:
    is_ready = True
    def status(self): return "well"
    def is_moving(self, most): return True
    def left(self): return 0
pause = time.sleep
async def change(settings): say("changed")
def say(word): print(word, flush=True)
async def work(ending):
    {}
async def run():
    ending = Service(View(), change, lambda: {}, 3, 5)
    notifier = Notifier(os.environ)
    say("in time" if await ending.run(notifier, dict, work(ending)) else "late")
asyncio.run(run())
"""


HANGS = "time.sleep(60)"


@contextmanager
def started(
    work: str, seconds: float = 5.0
) -> Iterator[tuple["subprocess.Popen[str]", Callable[[], str]]]:
    command = [sys.executable, "-c", PROGRAM.format(work, seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        yield program, program.stdout.readline


@pytest.mark.parametrize(
    ("work", "code"),
    [
        ('global slow; slow = Slow(); say("ready"); await ending.stop_requested.wait()', 0),
        (f'say("ready"); await ending.stop_requested.wait(); {HANGS}', 3),
        ('say("ready"); await asyncio.to_thread(time.sleep, 60)', 3),
    ],
    ids=["slow once all is done", "hangs", "a thread hangs"],
)
def test_it_ends_by_itself_or_by_the_last_resort(work: str, code: int) -> None:
    with started(work) as (program, line):
        line()
        program.send_signal(signal.SIGTERM)

        assert program.wait(60) == code


def test_a_signal_before_the_start_of_the_service_is_received() -> None:
    early = PROGRAM.replace(
        "asyncio.run(", "block_signals(); [os.kill(os.getpid(), n) for n in (1, 15)]; asyncio.run("
    )
    command = [sys.executable, "-c", early.format("await ending.stop_requested.wait()", 5.0)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "in time\n", "")


def test_work_that_takes_too_long_is_cancelled() -> None:
    with started('say("ready"); await asyncio.sleep(60)', seconds=0.0) as (program, line):
        line()
        program.send_signal(signal.SIGINT)

        assert line() == "late\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    hanging = (
        'say("ready"); await ending.stop_requested.wait(); say("asked"); await asyncio.sleep(60)'
    )
    with started(hanging, seconds=60.0) as (program, line):
        for _ in range(2):
            line()
            program.send_signal(number)

        assert program.wait(10) == -number
