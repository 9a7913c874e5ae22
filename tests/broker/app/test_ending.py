"""How a program ends that was told to: in order, in time, and with its own code."""

import signal
import subprocess
import sys

import pytest

ENDS = """
import asyncio, os, signal, sys, time
from broker.app.ending import BrokenOff, Ending
class Slow:
    def __del__(self): pause(4)
pause, slow = time.sleep, Slow()
async def work(ending):
    ending.listen(lambda: 5.0)
    {}
def say(word): print(word, flush=True)
asyncio.run(work(Ending(3, 3)))
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
