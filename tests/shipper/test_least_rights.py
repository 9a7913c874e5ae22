"""A shipper that may do nothing but ship its own host's lines can still claim, publish and rebuild its positions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import secured
from tests.shipper.logs import Ship, append
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("host", ["web01.example.net"])
def test_least_rights_suffice_to_ship_and_to_rebuild(
    processes: Processes, ship: Ship, tmp_path: Path, host: str, read_back: Callable[[str], bytes]
) -> None:
    server = secured.start_secured(processes, tmp_path, secured.host(host))
    log = tmp_path / "a.log"
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    cut = 600_000 + lines[600_000:].index(b"\n") + 1

    for part in (lines[:cut], lines[cut:]):
        append(log, part)
        process = ship(server.address, *server.options(host), "--once", "--file", log, host=host)
        assert process.wait(90) == 0, process.last_words()

    assert read_back(server.url()) == lines
    assert "Violation" not in server.said()
