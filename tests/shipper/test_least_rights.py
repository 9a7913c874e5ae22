"""A shipper that may do nothing but ship its own host's lines can still claim, publish, rebuild and hear of a pause."""

from pathlib import Path

import pytest

from broker.wire.pause import PAUSE_SUBJECT, Pause, encode_pauses
from tests import secured
from tests.shipper.conftest import read_lines
from tests.shipper.logs import Ship, append
from tests.shipper.saved import on
from tests.support.processes import Processes, wait_until

_PAUSED = (Pause(hosts="*"),)

pytestmark = pytest.mark.nats


def test_least_rights_suffice_to_ship_to_rebuild_and_to_hear_of_a_pause(
    processes: Processes, ship: Ship, tmp_path: Path
) -> None:
    host, log = "web01.example.net", tmp_path / "a.log"
    server = secured.start_secured(processes, tmp_path, secured.host(host))
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    cut = 600_000 + lines[600_000:].index(b"\n") + 1

    for part in (lines[:cut], lines[cut:]):
        append(log, part)
        process = ship(server.address, *server.options(host), "--once", "--file", log, host=host)
        assert process.wait(90) == 0, process.last_words()
    process = ship(server.address, *server.options(host), "--file", log, host=host)
    for change, words in ((_PAUSED, "paused until"), ((), "resumed")):
        value = encode_pauses(change)
        on(server.url(), lambda connection, value=value: connection.ask(PAUSE_SUBJECT, value))
        wait_until("it hears", lambda text=words: text in process.said(), 30, [process], every=0.02)

    assert read_lines(server.url()) == lines
    assert "Violation" not in server.said()
