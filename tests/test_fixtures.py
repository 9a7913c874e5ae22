"""The shared fixtures do what the other tests take for granted."""

import os
import signal
import subprocess
import sys

import pytest

from broker.client.answer import Rejected
from broker.client.bucket import read
from broker.client.connection import Connection
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY

pytestmark = pytest.mark.nats


async def test_a_fresh_address_sees_nothing_of_another_tests_streams(
    logs_url: str, nats_url: str
) -> None:
    shared = Connection([nats_url], "test")
    own = Connection([logs_url], "test")
    try:
        entry = await read(own, CONFIG_BUCKET, PARTITIONS_KEY)
        assert entry is not None
        assert entry.value == b"2"
        with pytest.raises(Rejected):
            await shared.api("STREAM.INFO.LOGS")
    finally:
        await own.close()
        await shared.close()


_SHELLS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def test_programs_of_a_test_find_signals_as_usual() -> None:
    asked = "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (1, 2, 3)])"

    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout == "[False, False, False]\n"
    assert not any(signal.getsignal(number) is signal.SIG_IGN for number in _SHELLS)


@pytest.mark.long
def test_a_background_job_that_ignores_signals_tests_as_any_other() -> None:
    inner = f"{__file__}::{test_programs_of_a_test_find_signals_as_usual.__name__}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}

    done = subprocess.run(
        ["sh", "-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert done.returncode == 0, done.stdout
