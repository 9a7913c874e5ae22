"""How a program ends that was told to: in order, in time, and with its own code."""

import signal
import subprocess
import sys

import pytest

ENDS = """
import asyncio, os, signal, sys, time
from broker.app.shutdown import BrokenOff, Shutdown
class Slow:
    def __del__(self): pause(4)
pause, slow = time.sleep, Slow()
async def work(ending):
    ending.listen(lambda: 5.0)
    {}
def say(word): print(word, flush=True)
asyncio.run(work(Shutdown(3, 3)))
"""


@pytest.mark.parametrize(
    ("work", "code"),
    [
        pytest.param('say("ready"); await ending.asked.wait()', 0, id="slow once all is done"),
        pytest.param('say("ready"); await ending.asked.wait(); time.sleep(60)', 3, id="hangs"),
        pytest.param(
            """try:
        with ending.breaking_off(): say("ready"); time.sleep(60)
    except BrokenOff: await ending.asked.wait()""",
            0,
            id="told while it blocks the loop",
        ),
        pytest.param(
            """try:
        with ending.breaking_off(): say("ready"); time.sleep(60)
    except BrokenOff: time.sleep(60)""",
            3,
            id="hangs as it breaks off",
        ),
    ],
)
def test_it_ends_by_itself_or_by_the_last_resort_and_never_by_a_signal(
    work: str, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDS.format(work)], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.send_signal(signal.SIGTERM)

        assert program.wait(60) == code


def test_a_second_signal_ends_it_at_once() -> None:
    script = (
        "import asyncio, time\nfrom broker.app.shutdown import Shutdown\n"
        "async def run():\n"
        "    ending = Shutdown(0, 30)\n"
        "    ending.listen(lambda: 30.0)\n"
        "    print('ready', flush=True)\n"
        "    await ending.asked.wait()\n"
        "    print('asked', flush=True)\n"
        "    await asyncio.to_thread(time.sleep, 30)\n"
        "asyncio.run(run())\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        ) as stuck:
            assert stuck.stdout is not None
            assert stuck.stdout.readline() == "ready\n"
            stuck.send_signal(number)
            assert stuck.stdout.readline() == "asked\n"
            stuck.send_signal(number)

            assert stuck.wait(10) == -number
