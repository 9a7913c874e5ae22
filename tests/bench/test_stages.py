"""Where time goes: stacks that were seen, and the stage that each is of."""

import pytest

from bench.stages import parts

STAGES = (
    ("start", ("<frozen importlib",)),
    ("compress", ("compression.py",)),
    ("send", ("nats/",)),
)


def test_a_stack_is_of_the_first_stage_that_one_of_its_frames_belongs_to() -> None:
    raw = (
        "main (a.py:1);compress (shipper/publishing/compression.py:30) 6\n"
        "main (a.py:1);<module> (nats/aio/client.py:1);find (<frozen importlib._bootstrap>:9) 2\n"
        "main (a.py:1);write (nats/aio/client.py:90);run (asyncio/events.py:8) 1\n"
        "main (a.py:1) 1\n"
    )

    assert parts(raw, STAGES) == {"start": 0.2, "compress": 0.6, "send": 0.1, "rest": 0.1}


def test_who_waits_is_not_at_work() -> None:
    raw = "run (a.py:1);select (selectors.py:468) 90\nrun (a.py:1);write (nats/b.py:2) 10\n"

    assert parts(raw, STAGES) == pytest.approx({"start": 0, "compress": 0, "send": 1, "rest": 0})


def test_of_nothing_there_are_no_parts() -> None:
    assert parts("", STAGES) == {}
